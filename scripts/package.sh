#!/usr/bin/env bash
# Builds a static program (musl) and a Debian package with systemd units: scripts/package.sh [OUT]
# Needs the target of rustup and a C compiler for it: rustup target add x86_64-unknown-linux-musl; apt install musl-tools.
# KINTSU_PROFILE=dev builds it in less time; KINTSU_BINARY=FILE packages a program that was built before.
# scripts/package-test.sh tries the package.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-target/package}")
machine=$(uname -m)
case $machine in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*) echo "expected x86_64 or aarch64, got $machine" >&2; exit 1 ;;
esac
binary=${KINTSU_BINARY:-}
if [ -z "$binary" ]; then
    target=$machine-unknown-linux-musl
    profile=${KINTSU_PROFILE:-release}
    lacks=
    [ -n "$(ls "$(rustc --print target-libdir --target "$target")" 2>/dev/null)" ] || lacks="the target $target of Rust (rustup target add $target)"
    command -v musl-gcc >/dev/null || lacks="${lacks:+$lacks and }musl-gcc (apt install musl-tools)"
    if [ -n "$lacks" ]; then
        echo "a static program needs $lacks; KINTSU_BINARY=FILE packages a program that is there" >&2
        exit 1
    fi
    cargo build --locked --profile "$profile" --target "$target" -p kintsu
    folder=$profile
    [ "$profile" != dev ] || folder=debug
    binary=${CARGO_TARGET_DIR:-target}/$target/$folder/kintsu
    # A program that asks for a loader is not static.
    if LC_ALL=C readelf -lW "$binary" | grep INTERP >/dev/null; then
        echo "expected a static program, got one that is linked to $(ldd "$binary" | wc -l) libraries" >&2
        exit 1
    fi
fi
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
install -D -m 755 "$binary" "$root/usr/bin/kintsu"
install -D -m 644 -t "$root/usr/lib/systemd/system" packaging/systemd/*.{service,timer}
install -D -m 644 packaging/sysusers.conf "$root/usr/lib/sysusers.d/kintsu.conf"
install -D -m 644 packaging/tmpfiles.conf "$root/usr/lib/tmpfiles.d/kintsu.conf"
install -D -m 644 docs/examples/kintsu.toml "$root/usr/share/doc/kintsu/examples/kintsu.toml"
install -D -m 644 -t "$root/usr/share/doc/kintsu" README.md CHANGELOG.md SAFETY.md LICENSE docs/operating.md
mkdir -p "$root/usr/share/man/man1" "$root/usr/share/bash-completion/completions"
"$binary" man "$root/usr/share/man/man1" >/dev/null
gzip -9n "$root"/usr/share/man/man1/*.1
"$binary" completions bash >"$root/usr/share/bash-completion/completions/kintsu"
# A static program depends on nothing.
depends=
if ldd "$binary" >/dev/null 2>&1 && ! ldd "$binary" 2>&1 | grep -q 'statically linked'; then
    depends='Depends: libc6 (>= 2.36)'
fi
mkdir -p "$root/DEBIAN" "$out"
cat >"$root/DEBIAN/control" <<CONTROL
Package: kintsu
Version: $version
Architecture: $arch
Maintainer: Kintsu <kintsu@localhost>
Section: admin
Priority: optional
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Recommends: systemd
Description: erasure-coded storage whose repairs are as fast as a read
 Coordinator, agents, clients, S3 and NBD servers in one program.
 Options of the services: /etc/kintsu/*.toml, see kintsu-config(1).
CONTROL
[ -z "$depends" ] || sed -i "/^Priority/a $depends" "$root/DEBIAN/control"
install -m 755 packaging/debian/postinst packaging/debian/prerm "$root/DEBIAN"
dpkg-deb --build --root-owner-group "$root" "$out/kintsu_${version}_$arch.deb"
tar -C "$root/usr/bin" -czf "$out/kintsu-$version-$machine.tar.gz" kintsu
ls -l "$out"
