# shellcheck shell=bash
# What ./run and ./test share: find Rust, install what is missing, say what is done and why. Sourced, not run.
# The caller sets `root`, the folder of the repository.
: "${root:?set by the script that sources this}"

# The home folder of the user who called sudo, if this is root through sudo and the tree is theirs; empty otherwise.
caller_home() {
	if [[ $EUID == 0 && -n ${SUDO_USER:-} && $SUDO_USER != root && $(stat -c %U "$root") == "$SUDO_USER" ]]; then
		getent passwd "$SUDO_USER" | cut -d: -f6
	fi
}
home=$(caller_home)
home=${home:-${HOME:-/root}}

# Where cargo and make build. libbpf's Makefile cannot stand a blank in its path.
target=$root/target
if [[ $root == *[[:space:]]* ]]; then
	target=$home/.cache/lightfoot/target-$(cksum <<< "$root" | cut -d ' ' -f 1)
fi
export CARGO_TARGET_DIR=$target

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# Ends with exit code 4: not possible here; the message says what to do.
give_up() {
	printf '%s: %s\n' "${0##*/}" "$1" >&2
	shift
	if (($#)); then printf '  %s\n' "$@" >&2; fi
	exit 4
}

# "1.90" of Cargo.toml, the oldest Rust that builds lightfoot.
wanted_rust() { sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1; }

# version_at_least HAVE WANTED
version_at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

# Puts a new enough cargo in PATH, or says how to get one.
need_rust() {
	local wanted have='' folder advice
	wanted=$(wanted_rust)
	# Under sudo the toolchain usually belongs to the user who called it.
	for folder in "$home/.cargo/bin" "${CARGO_HOME:-}/bin"; do
		if ! command -v cargo > /dev/null && [[ -x $folder/cargo ]]; then
			PATH=$folder:$PATH
		fi
	done
	export PATH
	if command -v cargo > /dev/null; then
		# In the repository's folder, where a toolchain override of rustup applies.
		have=$(cd "$root" && as_builder rustc --version 2> /dev/null | sed -n 's/^rustc \([0-9.]*\).*/\1/p') || true
	fi
	if [[ -n $have ]] && version_at_least "$have" "$wanted"; then return 0; fi
	if command -v rustup > /dev/null; then
		advice='rustup update stable && rustup default stable'
	elif has apt-cache && apt-cache pkgnames rustup 2> /dev/null | grep -qx rustup; then
		advice='apt-get install rustup && rustup default stable     (as root; or see https://rustup.rs)'
	else
		advice='see https://rustup.rs: one command, needs no root'
	fi
	if [[ -n $have ]]; then
		give_up "lightfoot needs Rust $wanted or newer, and this is Rust $have. To get it:" "$advice"
	fi
	give_up "lightfoot needs Rust $wanted or newer, and there is no cargo that works (looked in PATH and ~/.cargo/bin). To get it:" "$advice"
}

# Runs a build command as the user who owns the tree, so that `sudo ./run` leaves no files of root's in target/.
as_builder() {
	if [[ -n $(caller_home) ]]; then
		runuser -u "$SUDO_USER" -- env HOME="$home" PATH="$PATH" CARGO_TARGET_DIR="$target" "$@"
	else
		"$@"
	fi
}

# One line per thing needed: PACKAGE TEST... ; TEST ends with 0 if the thing is there already, whoever installed it.
has() { command -v "$1" > /dev/null; }
has_header() { [[ -e /usr/include/$1 || -e /usr/local/include/$1 ]] || compgen -G "/usr/include/*/$1" > /dev/null; }
has_clang() {
	local version
	version=$(clang -dumpversion 2> /dev/null) && version_at_least "$version" 14
}
has_static_busybox() { has busybox && ! ldd "$(command -v busybox)" > /dev/null 2>&1; }
has_chromium() { has chromium || has chromium-browser || has google-chrome; }
has_version() { # has_version COMMAND WANTED
	local version
	version=$("$1" --version 2> /dev/null | grep -o '[0-9][0-9.]*' | head -n 1) && version_at_least "$version" "$2"
}

needed_to_build() {
	cat <<- 'LIST'
		clang has_clang
		gcc has gcc
		libc6-dev has_header stdio.h
		make has make
		pkg-config has pkg-config
		libelf-dev has_header libelf.h
		zlib1g-dev has_header zlib.h
	LIST
}

# missing < LIST: names of the packages whose test fails.
missing() {
	local package check
	while read -r package check; do
		# shellcheck disable=SC2086 # the check is a command with its arguments
		$check || printf '%s\n' "$package"
	done
}

# Whether sudo can be used: without a terminal only if it asks nothing.
can_sudo() { has sudo && { [[ -t 0 ]] || sudo -n true 2> /dev/null; }; }

# install WHY PACKAGE...: installs with apt, or says exactly what to do. Returns 1 if `optional` is set, else ends.
install() {
	local why=$1 as_root=() command
	shift
	if (($# == 0)); then return 0; fi
	command="apt-get install --yes --no-install-recommends $*"
	if ! has apt-get; then
		cannot_install "$why: these things are missing (Debian's names): $*" \
			'this machine has no apt-get; the same under other names, for example:' \
			'Fedora: dnf install clang gcc make pkgconf elfutils-libelf-devel zlib-devel glibc-devel' \
			'Arch:   pacman -S clang gcc make pkgconf libelf zlib'
		return 1
	fi
	if [[ $EUID != 0 ]]; then
		if can_sudo; then
			as_root=(sudo)
		else
			cannot_install "$why: packages are missing, and installing needs root. Run as root:" "$command"
			return 1
		fi
	fi
	say "$why: installing $*"
	say "  ${as_root[*]:+${as_root[*]} }$command"
	local env=(env DEBIAN_FRONTEND=noninteractive)
	# A new machine is often busy with updates of its own.
	command+=' -o DPkg::Lock::Timeout=180'
	# shellcheck disable=SC2086 # the command is made of plain words
	if "${as_root[@]}" "${env[@]}" $command > /dev/null 2>&1; then return 0; fi
	# Old or absent package lists.
	say "  refreshing the package lists first"
	# shellcheck disable=SC2086
	if "${as_root[@]}" "${env[@]}" apt-get --quiet=2 update >&2 \
		&& "${as_root[@]}" "${env[@]}" $command > /dev/null; then return 0; fi
	cannot_install "$why: could not install $* (see above; without network, install them by hand):" "$command"
	return 1
}

cannot_install() {
	if [[ -n ${optional:-} ]]; then
		printf '%s: %s\n' "${0##*/}" "$1" >&2
		shift
		printf '  %s\n' "$@" >&2
	else
		give_up "$@"
	fi
}

install_for_build() {
	local packages
	mapfile -t packages < <(needed_to_build | missing)
	install 'to build lightfoot' "${packages[@]}"
}
