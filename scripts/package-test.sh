#!/usr/bin/env bash
# Installs the Debian package into a temporary root, tries it there, and removes it: scripts/package-test.sh [DEB]
#
# Without DEB, scripts/package.sh builds it first. The root is made of what this machine has installed of a few packages (dpkg, a shell,
# useradd), so nothing is fetched; programs run in it by chroot, as root of a machine or container with Debian. Nothing outside
# of the root changes. The first thing that is not as it should be ends the script.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "expected root (for chroot), got user $(id -un)" >&2; exit 1; }
deb=${1:-}
if [ -z "$deb" ]; then
    out=$(realpath -m target/package)
    rm -f "$out"/kintsu_*.deb
    scripts/package.sh "$out"
    deb=$(echo "$out"/kintsu_*.deb)
fi
root=$(mktemp -d)
served=
finish() {
    [ -z "$served" ] || { kill "$served" && wait "$served"; } 2>/dev/null || true
    rm -rf "$root"
}
trap finish EXIT
fail() {
    echo "FAILED: $*" >&2
    exit 1
}
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin LC_ALL=C "$@"; }

chmod 755 "$root"
mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root"/{dev,etc,tmp,root,var/lib/dpkg/{info,updates,triggers},var/log}
chmod 1777 "$root/tmp"
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
# Not a device: the shell only writes to it.
: >"$root/dev/null" && chmod 666 "$root/dev/null"
mapfile -t packages < <({
    printf '%s\n' dpkg passwd dash libc-bin tar sed grep coreutils diffutils login
    apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances \
        --installed dpkg passwd dash libc-bin tar sed grep coreutils diffutils login | sed -n 's/^[a-z]/&/p'
} | sort -u | while read -r name; do if dpkg-query -W -f '${Status}' "$name" 2>&1 | grep -q '^install ok installed$'; then echo "$name"; fi; done)
for package in "${packages[@]}"; do
    dpkg -L "$package" | while read -r path; do if [ -e "$path" ] && { [ -L "$path" ] || [ ! -d "$path" ]; }; then echo "${path#/}"; fi; done
    for list in "/var/lib/dpkg/info/$package.list" "/var/lib/dpkg/info/$package:"*.list; do
        if [ -e "$list" ]; then cp "$list" "$root/var/lib/dpkg/info"; fi
    done
    dpkg-query -s "$package" >>"$root/var/lib/dpkg/status"
    echo >>"$root/var/lib/dpkg/status"
done | sort -u | tar -C / -cf - --no-recursion -T - | tar -C "$root" --keep-directory-symlink -xf -
ln -sf dash "$root/usr/bin/sh"
cp /usr/share/base-passwd/passwd.master "$root/etc/passwd"
cp /usr/share/base-passwd/group.master "$root/etc/group"
echo "== a root of ${#packages[@]} packages, $(du -sm "$root" | cut -f1) MiB"

cp "$deb" "$root/tmp/kintsu.deb"
inside dpkg -i /tmp/kintsu.deb
echo "== installed: $(inside dpkg-query -W -f '${Status} ${Version} ${Architecture}' kintsu)"
version=$(inside kintsu --version)
grep -q '^kintsu [0-9]' <<<"$version" || fail "expected kintsu and its version, got $version"
echo "== $version"
# A package that depends on nothing has a program that runs where there is nothing else.
if [ -z "$(inside dpkg-query -W -f '${Depends}' kintsu)" ]; then
    install -D "$root/usr/bin/kintsu" "$root/tmp/alone/kintsu"
    alone=$(chroot "$root/tmp/alone" /kintsu --version) || fail "expected a static program, got one that does not run alone"
    [ "$alone" = "$version" ] || fail "expected $version of the program alone, got $alone"
    rm -r "$root/tmp/alone"
    echo "== static: it runs in a root of its own"
else
    echo "== linked to libc"
fi
inside kintsu config check /usr/share/doc/kintsu/examples/kintsu.toml
inside getent passwd kintsu || fail "expected a user kintsu, got none"
for want in "/var/lib/kintsu 750 kintsu:kintsu" "/etc/kintsu 750 root:kintsu"; do
    read -r folder mode owner <<<"$want"
    got=$(inside stat -c '%a %U:%G' "$folder")
    [ "$got" = "$mode $owner" ] || fail "$folder: expected $mode $owner, got $got"
done
for unit in "$root"/usr/lib/systemd/system/kintsu*.service; do
    page=$(sed -n 's/^Documentation=man:\(.*\)(1)$/\1/p' "$unit")
    inside test -s "/usr/share/man/man1/$page.1.gz" || fail "$(basename "$unit"): expected a manual page $page, got none"
    program=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$unit")
    [ -x "$root$program" ] || fail "$(basename "$unit"): expected a program at $program, got none"
done
[ -e "$root/usr/lib/systemd/system/kintsu-repack.timer" ] || fail "expected kintsu-repack.timer, got none"

# As a service would: with a file of options, as the user kintsu.
address=127.0.0.1:$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
printf '[up]\ndir = "/var/lib/kintsu/up"\nnodes = 6\nracks = 3\nlisten = "%s"\nno-page = true\n' "$address" >"$root/etc/kintsu/up.toml"
inside kintsu config check /etc/kintsu/up.toml
chroot --userspec=kintsu:kintsu "$root" /usr/bin/kintsu up --config /etc/kintsu/up.toml >"$root/tmp/up.log" 2>&1 &
served=$!
for _ in $(seq 150); do
    if inside kintsu --coordinator "$address" health >"$root/tmp/health" 2>&1; then break; fi
    sleep 0.2
done
inside kintsu --coordinator "$address" put /usr/bin/kintsu program --code rs:n=6,k=4 || { cat "$root/tmp/up.log"; fail "a put"; }
inside kintsu --coordinator "$address" node stop 1
inside kintsu --coordinator "$address" get program /tmp/program
inside cmp /usr/bin/kintsu /tmp/program || fail "expected the bytes that were put, got others"
kill "$served"
wait "$served" || true
served=
echo "== a cluster in the root stored and read $(stat -c %s "$root/tmp/program") bytes, one node stopped"

# The same package once more is an upgrade, here beside services that a systemd of two words tells of: it restarts nothing and says so.
# Then it goes, and data stay.
mkdir -p "$root/run/systemd/system"
cat >"$root/usr/bin/systemctl" <<'SYSTEMCTL'
#!/bin/sh
echo "$*" >>/tmp/systemctl.log
[ "$1" != list-units ] || echo 'kintsu-agent@disk1.service loaded active running Kintsu agent for disk disk1'
SYSTEMCTL
chmod 755 "$root/usr/bin/systemctl"
inside dpkg -i /tmp/kintsu.deb >"$root/tmp/upgrade"
for words in '  kintsu-agent@disk1.service' 'Restart them one at a time'; do
    grep -q "^$words" "$root/tmp/upgrade" || { cat "$root/tmp/upgrade"; fail "an upgrade: expected \"$words\""; }
done
grep -qx daemon-reload "$root/tmp/systemctl.log" || fail "an upgrade: expected systemd to read the units again"
if grep -E 'restart|stop' "$root/tmp/systemctl.log"; then fail "an upgrade: expected nothing to be restarted"; fi
inside dpkg -r kintsu
grep -q '^stop .*kintsu-\*\.service' "$root/tmp/systemctl.log" || fail "a removal: expected services to be stopped"
[ ! -e "$root/usr/bin/kintsu" ] || fail "expected no program after its removal, got one"
[ -d "$root/var/lib/kintsu/up" ] || fail "expected data after the removal of the program, got none"
echo "== upgraded and removed; data are still there"
