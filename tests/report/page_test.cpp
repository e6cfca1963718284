#include "lockstep/report/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep::page {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Table table_of(const std::string& value) {
  return {.id = "times",
      .title = "Times",
      .columns = {{"cell", true}, {"here [s]"}},
      .rows = {{"dp x 2", value}, {"ddp | <b>", "killed by SIGKILL"}},
      .notes = {"three rounds"}};
}

Page page_of(const Table& table) {
  return {.title = "Report",
      .sections = {{.title = "Study",
          .question = "Which?",
          .conclusion = {.answer = "This one.", .remarks = {"Of <three>.", "By chance."}},
          .tables = {table}}}};
}

TEST(Page, ShowsTheSameNumberEverywhere) {
  for (const std::string value : {"12.375", "7.125"}) {
    const Page page = page_of(table_of(value));
    EXPECT_THAT(to_text(page.sections.front()), HasSubstr(value));
    EXPECT_THAT(to_markdown(page), HasSubstr("| dp x 2 | " + value + " |"));
    EXPECT_THAT(to_html(page), HasSubstr("<td>" + value + "</td>"));
  }
  EXPECT_THAT(to_html(page_of(table_of("7.125"))), Not(HasSubstr("12.375")));
}

TEST(Page, AnswersInShortAndRemarksWhereTheTablesAre) {
  const Page page = page_of(table_of("1"));
  EXPECT_THAT(
      to_text(page.sections.front()), HasSubstr("\nThis one.\n* Of <three>.\n* By chance.\n"));
  EXPECT_THAT(
      to_markdown(page), HasSubstr("**This one.**\n\n* Of &lt;three&gt;.\n* By chance.\n\n"));
  EXPECT_THAT(to_markdown(page), HasSubstr("* **Study**: This one.\n\n## Study"));
  EXPECT_THAT(
      to_html(page), HasSubstr("<ul>\n<li>Of &lt;three&gt;.</li>\n<li>By chance.</li>\n</ul>"));
  EXPECT_THAT(to_html(page), HasSubstr("</a>: This one.</li>"));
}

TEST(Page, KeepsMarkupOfCellsAsText) {
  const Page page = page_of(table_of("1"));
  EXPECT_THAT(to_markdown(page), HasSubstr("ddp \\| &lt;b&gt;"));
  EXPECT_THAT(to_html(page), HasSubstr("ddp | &lt;b&gt;"));
}

TEST(Page, NeedsNeitherNetworkNorScript) {
  const std::string html = to_html(page_of(table_of("1")));
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("src=\"")));
}

TEST(Page, RefusesAnEmptyCell) {
  EXPECT_THAT(
      lockstep::testing::message_of<InvalidArgument>([] { to_html(page_of(table_of(""))); }),
      HasSubstr("row 0, column 'here [s]': the cell is empty"));
}

TEST(Page, RefusesTwoTablesOfOneId) {
  Page page = page_of(table_of("1"));
  page.sections.push_back(page.sections.front());
  EXPECT_THROW(check_page(page), InvalidArgument);
}

TEST(Text, TakesControlsFromATerminal) {
  EXPECT_THAT(to_text(table_of("\x1b[2J")), Not(HasSubstr("\x1b")));
}

TEST(Text, CountsCharactersNotBytes) {
  Table table = table_of("1");
  table.rows = {{"\u00e9\u00e9\u00e9\u00e9", "1"}, {"abcd", "2"}};
  EXPECT_THAT(to_text(table), HasSubstr("\u00e9\u00e9\u00e9\u00e9         1\nabcd         2\n"));
}

}  // namespace
}  // namespace lockstep::page
