"""Serves a folder on loopback: file_server.py FOLDER [CERTIFICATE KEY].

An address names a file of the folder, or a behaviour below: how well or badly FOLDER/content is served.
Prints `port N`, then a line for each request: its path, Range and If-Range. Ends when it is killed.
"""

import ssl
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER = Path(sys.argv[1])
SECURE = len(sys.argv) > 2
seen = {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        behaviour, _, argument = self.path.strip("/").partition("/")
        named = (FOLDER / behaviour).is_file()
        self.content = (FOLDER / (behaviour if named else "content")).read_bytes()
        self.times = seen[self.path] = seen.get(self.path, 0) + 1
        print(self.path, self.headers.get("Range", "-"), self.headers.get("If-Range", "-"), flush=True)
        getattr(self, "good" if named else behaviour)(argument)

    def asked_from(self):
        """Returns where the asked part begins; the whole file if it changed since."""
        asked = self.headers.get("Range", "bytes=0-")
        return int(asked.removeprefix("bytes=").removesuffix("-"))

    def answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def part(self, begin, send=None, **headers):
        """Sends the file from `begin` on, but only `send` bytes before the connection breaks."""
        body = self.content[begin:]
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(body)))
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(self.content) - 1}/{len(self.content)}")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:send])
        if send is not None:
            self.close_connection = True

    def good(self, _):
        self.part(self.asked_from())

    def cut(self, bytes_each_time):
        """Breaks the connection after so many bytes, each time."""
        self.part(self.asked_from(), int(bytes_each_time), ETag='"first"')

    def cut_without_ranges(self, times):
        """Breaks off half way so many times, and knows no parts."""
        self.part(0, len(self.content) // 2 if self.times <= int(times) else None)

    def changed(self, _):
        """Breaks off half way, and then has another state of the file."""
        if self.times == 1:
            self.part(0, len(self.content) // 2, ETag='"first"')
        elif self.headers.get("If-Range") == '"first"':
            self.part(0, ETag='"second"')
        else:
            self.part(self.asked_from(), ETag='"second"')

    def weak(self, _):
        self.part(self.asked_from(), len(self.content) // 2, ETag='W/"weak"')

    def other_part(self, _):
        if "Range" not in self.headers:
            self.part(0, 100)
        else:
            self.answer(206, self.content[99:], Content_Range=f"bytes 99-{len(self.content) - 1}/*")

    def no_such_range(self, _):
        if "Range" in self.headers:
            self.answer(416, b"")
        else:
            self.part(0)

    def status(self, number):
        self.answer(int(number.split("/")[0]), b"<html>an error page</html>" * 1000)

    def busy(self, times):
        if self.times <= int(times):
            self.answer(503, b"later", Retry_After=0)
        else:
            self.part(0)

    def wrong(self, _):
        body = bytearray(self.content[self.asked_from():])
        body[-1] ^= 1
        self.answer(206 if "Range" in self.headers else 200, bytes(body),
                    Content_Range=f"bytes {self.asked_from()}-{len(self.content) - 1}/*")

    def shorter(self, _):
        self.answer(200, self.content[:-1])

    def longer(self, _):
        self.answer(200, self.content + b"x")

    def endless(self, _):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
        for _ in range(16 * 1024):  # 1 GiB: nobody may take it all
            self.wfile.write(chunk)

    def slow(self, _):
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        for byte in self.content[:600]:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(0.1)

    def silent_after_length(self, length):
        """Says how long the file is, and then nothing."""
        self.send_response(200)
        self.send_header("Content-Length", length)
        self.end_headers()
        time.sleep(30)

    def silent_after_range(self, length):
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {self.asked_from()}-{int(length) - 1}/{length}")
        self.send_header("Content-Length", str(int(length) - self.asked_from()))
        self.end_headers()
        time.sleep(30)

    def redirect(self, times):
        self.answer(302, b"", Location=f"/redirect/{int(times) - 1}" if int(times) > 1 else "/good")

    def redirect_to(self, address):
        self.answer(302, b"", Location=address)

    def compressed(self, _):
        """Says that the bytes are packed, though nobody asked for that."""
        self.answer(200, self.content, Content_Encoding="gzip")

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Stays silent: many clients here leave in the middle, on purpose."""


server = Server(("127.0.0.1", 0), Handler)
if SECURE:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2], sys.argv[3])
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print("port", server.server_address[1], flush=True)
server.serve_forever()
