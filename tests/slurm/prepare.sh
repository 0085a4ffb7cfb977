#!/bin/sh
# Unpack a Slurm for tests/program/test_jobs.py into the directory named (.venv/slurm): Debian or Ubuntu packages, 6 MB, some seconds.
# Nothing is installed and root is not needed. Where it cannot be done it says why and exits 1, and those tests are skipped.
set -e
into=${1:-.venv/slurm}
wanted="slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge" content="Slurm and PMIx"
[ "$(cat "$into/ready" 2>/dev/null)" = "$content" ] && exit 0
for tool in apt-get apt-cache dpkg timeout; do
    command -v $tool >/dev/null || { echo "no Slurm for the tests: no $tool here"; exit 1; }
done
new=$into.new  # an older one stays until there is a newer one
rm -rf "$new" && mkdir -p "$new/packages/partial" "$new/lists/partial"
cd "$new"
trap 'rm -rf packages lists' EXIT

# the machine's own package lists if they serve, else lists of our own
apt() { tool=$1; shift; timeout 120 $tool -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=10 -o Debug::NoLocking=1 "$@"; }
fetch() {
    # with PMIx, where there is one, and the shared libraries that these need; a machine without X or a scheduler has few of them
    all="$wanted $(apt apt-cache "$@" pkgnames libpmix2 | grep -x 'libpmix2\(t64\)\{0,1\}' | head -n 1)"
    libraries=$(apt apt-cache "$@" depends $all | sed -n 's/^ *Depends: \(lib[a-z0-9.+-]*\)$/\1/p' | grep -v '^libc6$' | sort -u)
    (cd packages && apt apt-get -o APT::Sandbox::User=root "$@" download $all $libraries)
}
if ! fetch >log 2>&1; then
    own="-o Dir::State::lists=$PWD/lists -o Dir::Cache=$PWD/packages"
    if ! { apt apt-get -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any $own update && fetch $own; } >>log 2>&1; then
        echo "no Slurm for the tests: its packages cannot be fetched; $new/log ends with: $(tail -n 1 log)"
        exit 1
    fi
fi
for package in packages/*.deb; do dpkg -x "$package" . ; done
rm -rf usr/share etc log packages lists usr/lib/*/libpmix.so*  # the one in pmix2/lib is for Slurm alone: programs have their own
echo "$content" >ready
trap - EXIT
cd "$OLDPWD"
rm -rf "$into"
mv "$new" "$into"
