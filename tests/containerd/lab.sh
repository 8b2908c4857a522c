#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# lab.sh: a real containerd with NRI, in a mount, network and pid namespace of its own.
#
#   lab.sh fetch             fetch containerd 1.7 and 2.1, runc and CNI plugins; make an image
#   lab.sh up 17|21          make the namespaces, start that containerd in them
#   lab.sh in 17|21 CMD...   run a command inside
#   lab.sh cri 17|21 ...     talk to it as a kubelet, see cri.py --help
#   lab.sh ctd-stop|ctd-kill|ctd-start 17|21
#                            end containerd alone, by SIGTERM or SIGKILL; start it again
#   lab.sh down 17|21        end everything inside
#
# Nothing is installed. Inside, /run is the lab's own: from outside it is $NETCLAIM_LAB/17|21/run
# (default of NETCLAIM_LAB: /tmp/netclaim-lab). Ends with 77 if the programs cannot be had.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source=../debian.sh
. "$here/../debian.sh"

programs=$cache/containerd
image=localhost/netclaim/pause:1
cgroup=netclaim-lab
socket=/run/containerd/containerd.sock

# --- programs ------------------------------------------------------------------------------------

fetched() { [ -e "$programs/$1/fetched" ]; }

# unpack_from DIR SUITE PACKAGE...
unpack_from() {
	local dir=$1 suite=$2
	shift 2
	apt_open "$suite" "$suite" || cannot "the package lists of $suite cannot be had"
	unpack_packages "$dir" "$@" || cannot "$suite: $* cannot be fetched"
}

# fetch_version VERSION SUITE: containerd and the CNI plugins of SUITE, runc of this machine's own
# Debian, since a newer one wants a newer libc
fetch_version() {
	local dir=$programs/$1
	fetched "$1" && return
	say "fetching containerd of $2 (60 MB) ..."
	rm -rf "$dir"
	unpack_from "$dir" "$2" containerd containernetworking-plugins
	unpack_from "$dir" "$codename" runc
	say "$("$dir/usr/bin/containerd" --version)"
	touch "$dir/fetched"
}

make_image() {
	local binary
	binary=$(mktemp)
	gcc -std=c11 -D_GNU_SOURCE -Wall -Werror -static -Os -s -o "$binary" "$here/pause.c"
	"$here/mkimage.py" "$binary" "$programs/pause.tar.new" "$image"
	mv "$programs/pause.tar.new" "$programs/pause.tar"
	rm "$binary"
}

fetch() {
	local lock
	mkdir -p "$programs"
	exec {lock}>"$programs/lock"
	flock "$lock"
	fetch_version 17 trixie
	fetch_version 21 forky
	if [ ! "$programs/pause.tar" -nt "$here/pause.c" ] || [ ! "$programs/pause.tar" -nt "$here/mkimage.py" ]; then
		make_image
	fi
	exec {lock}>&-
}

# --- one lab -------------------------------------------------------------------------------------

# wait_for SECONDS COMMAND...: until the command succeeds
wait_for() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $deadline ] || return 1
		sleep 0.1
	done
}

gone() { [ ! -e "/proc/$1" ]; }
inside() { nsenter -t "$(cat "$state/init.pid")" -m -n -p -- "$@"; }
ctr() { inside "$root/usr/bin/ctr" -a $socket "$@"; }

write_configuration() {
	local runc
	runc=$(PATH=$root/usr/sbin:$root/usr/bin type -P runc)
	mkdir -p "$state/cni" "$state/nri-plugins" "$state/nri-conf"
	# no gateway and no masquerading: neither iptables nor nft is needed
	cat >"$state/cni/10-lab.conflist" <<-END
		{ "cniVersion": "0.4.0", "name": "lab", "plugins": [
		  { "type": "bridge", "bridge": "labbr0", "isGateway": false, "ipMasq": false,
		    "ipam": { "type": "host-local", "dataDir": "/run/cni-ipam", "subnet": "10.213.7.0/24" } } ] }
	END
	# restrict_oom_score_adj: root without CAP_SYS_RESOURCE may not lower it
	if [ "$version" = 17 ]; then
		cat <<-END
			version = 2
			[plugins."io.containerd.grpc.v1.cri"]
			  sandbox_image = "$image"
			  restrict_oom_score_adj = true
			  enable_cdi = true
			  cdi_spec_dirs = ["/run/cdi"]
			  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
			    runtime_type = "io.containerd.runc.v2"
			    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
			      BinaryName = "$runc"
			  [plugins."io.containerd.grpc.v1.cri".cni]
			    bin_dir = "$root/usr/lib/cni"
			    conf_dir = "$state/cni"
		END
	else
		cat <<-END
			version = 3
			[plugins."io.containerd.cri.v1.images".pinned_images]
			  sandbox = "$image"
			[plugins."io.containerd.cri.v1.runtime"]
			  restrict_oom_score_adj = true
			  cdi_spec_dirs = ["/run/cdi"]
			  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
			    runtime_type = "io.containerd.runc.v2"
			    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
			      BinaryName = "$runc"
			  [plugins."io.containerd.cri.v1.runtime".cni]
			    bin_dirs = ["$root/usr/lib/cni"]
			    conf_dir = "$state/cni"
		END
	fi >"$state/config.toml"
	cat >>"$state/config.toml" <<-END
		[plugins."io.containerd.nri.v1.nri"]
		  disable = false
		  socket_path = "/run/nri/nri.sock"
		  plugin_path = "$state/nri-plugins"
		  plugin_config_path = "$state/nri-conf"
	END
	sed -i "1a root = \"$state/root\"\nstate = \"/run/containerd\"" "$state/config.toml"
}

start_containerd() {
	# shellcheck disable=SC2016 # the inner shell's own pid
	inside env PATH="$root/usr/bin:$root/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin" setsid sh -c \
		'echo $$ >"$0/containerd.pid"; exec containerd -c "$0/config.toml" --log-level debug' \
		"$state" </dev/null >>"$state/containerd.log" 2>&1 &
	echo $! >"$state/nsenter.pid"
	wait_for 60 ctr version && return
	say "containerd does not answer; the end of $state/containerd.log:"
	tail -5 "$state/containerd.log" >&2
	return 1
}

# end_containerd SIGNAL; nsenter ends with it
end_containerd() {
	inside kill "-$1" "$(cat "$state/containerd.pid")"
	wait_for 30 gone "$(cat "$state/nsenter.pid")"
}

up() {
	if ! fetched "$version" || [ ! -e "$programs/pause.tar" ]; then fetch; fi
	[ ! -e "$state" ] || { say "$state is there already: lab.sh down $version"; exit 1; }
	mkdir -p "$state/run" "$state/root"
	write_configuration
	mkfifo "$state/ready"
	# containerd's root is a tmpfs: its overlays cannot stand on another overlay. The first process
	# stays a shell, which reaps.
	# shellcheck disable=SC2016 # expanded by the inner shell
	unshare -m -n -p -f --mount-proc --propagation private --kill-child sh -ec '
		mount -t tmpfs -o mode=711 tmpfs "$0/root"
		mount --bind "$0/run" /run
		mkdir -p /run/netns /run/cdi /run/nri
		ip link set lo up
		echo ready >"$0/ready"
		while :; do sleep 3600; done' "$state" </dev/null >"$state/init.log" 2>&1 &
	echo $! >"$state/unshare.pid"
	timeout 10 cat "$state/ready" >/dev/null || { cat "$state/init.log" >&2; exit 1; }
	tr -d ' ' <"/proc/$!/task/$!/children" >"$state/init.pid"
	start_containerd
	ctr -n k8s.io images import "$programs/pause.tar" >/dev/null
}

down() {
	local dir pid
	pid=$(cat "$state/unshare.pid")
	kill -KILL "$pid" 2>/dev/null || true
	wait_for 10 gone "$pid"
	wait_for 10 gone "$(cat "$state/nsenter.pid")"
	for dir in "/sys/fs/cgroup/$cgroup" /sys/fs/cgroup/*/"$cgroup"; do
		[ ! -d "$dir" ] || find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null || true
	done
	rm -r "$state"
}

usage() {
	sed -n '5,13s/^# *//p' "$0" >&2
	exit 2
}

command=${1:-}
[ "$command" != fetch ] || { fetch; exit; }
version=${2:-}
[[ $version = 17 || $version = 21 ]] || usage
shift 2
root=$programs/$version
state=${NETCLAIM_LAB:-/tmp/netclaim-lab}/$version

case $command in
up) up ;;
down) down ;;
in) inside "$@" ;;
cri) inside "$here/cri.py" "$@" ;;
ctd-stop) end_containerd TERM ;;
ctd-kill) end_containerd KILL ;;
ctd-start) start_containerd ;;
*) usage ;;
esac
