# Packages of any Debian suite, unpacked below a directory; sourced by the fetch scripts, which set
# `root`. The system is not touched: apt runs on lists, a cache and a source list of its own, and
# packages are unpacked, not installed.

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
components=(main contrib non-free non-free-firmware)

# The archive that this machine's own apt uses, one line: scheme, host and path.
archive() {
    apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' \
        | awk '$1 ~ /debian\/?$/ && $3 == "main" { print $1; exit }'
}

private_apt() {
    local state=$root/apt/$1
    "$2" -q -o Dir::Etc::SourceList="$state/sources.list" -o Dir::Etc::SourceParts=- \
        -o Dir::State="$state/state" -o Dir::State::Lists="$state/lists" -o Dir::Cache="$state/cache" \
        -o Dir::State::status="$state/status" -o APT::Sandbox::User=root \
        -o APT::Architectures="$(dpkg --print-architecture),i386" -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
        "${@:3}"
}

# unpack SUITE DIR PACKAGE...: newest version in the suite, unpacked into DIR/root; done once.
unpack() {
    local suite=$1 dir=$2 state=$root/apt/$1 site
    shift 2
    if [[ -e $dir/.complete ]]; then return; fi
    site=$(archive)
    if [[ -z $site ]]; then
        echo "${0##*/}: apt knows no Debian archive yet: run apt-get update" >&2
        exit 1
    fi
    mkdir -p "$state"/{lists/partial,cache/archives/partial,state}
    : >"$state/status"
    echo "deb [signed-by=$keyring] $site $suite ${components[*]}" >"$state/sources.list"
    private_apt "$suite" apt-get update
    local staging=$dir.partial
    rm -rf "$staging" "$dir"
    mkdir -p "$staging/debs" "$staging/root"
    (cd "$staging/debs" && private_apt "$suite" apt-get download "$@")
    for deb in "$staging"/debs/*.deb; do
        dpkg -x "$deb" "$staging/root"
        basename "$deb" >>"$staging/packages"
    done
    rm -rf "$staging/debs"
    mv "$staging" "$dir"
    touch "$dir/.complete"
}

# once: no other fetch of the same files runs beside this one.
once() {
    mkdir -p "$root"
    exec 9>"$root/lock"
    flock 9
}
