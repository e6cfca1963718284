# shellcheck shell=bash
# What ./dev avx512 does: runs tests on a processor with AVX-512 that Bochs emulates, for machines that have none.
#
# A Debian kernel starts from a disc that has nothing but a test program and its libraries; LOCKSTEP_SIMD=avx512 makes the
# program fail on another processor. That takes some minutes, and a second of computing ten more: name few tests. Bochs
# shows its screen by the network, which is not to be seen from elsewhere.

avx512_folder=build/avx512
packages_for_avx512=(bochs bochs-term bochsbios vgabios isolinux syslinux-common xorriso cpio busybox-static)

# Bochs stores less by XSAVEC (321; XSAVES is 323) than it says, for which the kernel would turn AVX off. The loader uses it
# when it looks up a function at its first call, and would fail there, so it looks up all of them at the start.
avx512_kernel_flags="console=ttyS0 quiet nox2apic mitigations=off nokaslr lsm= lpj=1000000 tsc=reliable nowatchdog noxsaves clearcpuid=321,323"

# avx512_disc PROGRAM FILTER makes the disc, with its files in a folder beside it.
avx512_disc() {
  rm -rf "${avx512_folder:?}"
  mkdir -p "$avx512_folder"/{kernel,disc,system/{bin,dev,proc,sys,lib,lib64,tmp}}
  avx512_kernel
  avx512_programs "build/release/bin/$1"
  avx512_init "$2" >"$avx512_folder/system/init"
  chmod +x "$avx512_folder/system/init"
  (cd "$avx512_folder/system" && find . | cpio --create --format newc --quiet) >"$avx512_folder/disc/system"
  cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$avx512_folder/disc"
  echo "default kernel initrd=system $avx512_kernel_flags" >"$avx512_folder/disc/isolinux.cfg"
  xorriso -as mkisofs -o "$avx512_folder/disc.iso" -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 \
    -boot-info-table "$avx512_folder/disc"
}

avx512_kernel() {
  local package
  package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
  (cd "$avx512_folder/kernel" && apt-get download "$package" && dpkg-deb --extract "$package"_*.deb .)
  cp "$avx512_folder"/kernel/boot/vmlinuz-* "$avx512_folder/disc/kernel"
}

avx512_programs() {
  local library
  cp /bin/busybox "$avx512_folder/system/bin"
  cp -L /lib64/ld-linux-x86-64.so.2 "$avx512_folder/system/lib64"
  strip -o "$avx512_folder/system/bin/test" "$1"
  ldd "$1" | awk '$2 == "=>" { print $3 }' | while read -r library; do
    strip --strip-unneeded -o "$avx512_folder/system/lib/${library##*/}" "$library"
  done
}

avx512_init() {
  cat <<TEXT
#!/bin/busybox sh
for kind in proc sys dev; do /bin/busybox mount -t "\${kind/dev/devtmpfs}" none "/\$kind"; done
/bin/busybox mkdir /dev/shm
export LD_BIND_NOW=1 LD_LIBRARY_PATH=/lib HOME=/tmp OMP_NUM_THREADS=1 LOCKSTEP_SIMD=avx512
/bin/test --gtest_color=no '--gtest_filter=$1' 2>&1
echo "ended with \$?"
/bin/busybox dmesg | /bin/busybox grep -E 'segfault|traps:'
/bin/busybox sleep 1 # until all is written
/bin/busybox poweroff -f
TEXT
}

avx512_processor() {
  cat <<TEXT
cpu: model=corei7_skylake_x, count=1, ips=100000000
megs: 2040
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/vgabios/vgabios.bin
ata0-master: type=cdrom, path=$avx512_folder/disc.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$avx512_folder/said
display_library: rfb, options="timeout=0"
log: $avx512_folder/bochs.log
panic: action=fatal
TEXT
}

# dev_avx512 PROGRAM FILTER
dev_avx512() {
  (($# == 2)) || die "dev: avx512 takes a test program and a filter of its tests, such as: nn_test 'Linear.*'"
  packages+=("${packages_for_avx512[@]}")
  dev_build "$1"
  phase_begin avx512
  phase_step disc avx512_disc "$@"
  avx512_processor >"$avx512_folder/processor"
  echo c >"$avx512_folder/commands" # Debian's Bochs stops for its debugger: go on
  # It ends with 1 whatever the program has done.
  phase_run emulate unshare --map-root-user --net bochs -q -f "$avx512_folder/processor" -rc "$avx512_folder/commands" || true
  phase_end
  cat "$avx512_folder/said" || phase_fail emulate
  grep -qE '^ended with 0([^0-9]|$)' "$avx512_folder/said"
}
