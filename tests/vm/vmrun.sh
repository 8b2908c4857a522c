#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# vmrun.sh -k VMLINUZ -i INITRD [-t SECONDS] [-j JOBDIR] [-q QEMU_ARGS] CMDFILE
# Boots a VM whose root is this machine's / (read-only, with a tmpfs on top), runs CMDFILE in it with
# bash, prints its output as it comes and ends with its status: 124 if it took longer than SECONDS,
# 125 if the VM ended without telling one. JOBDIR is /mnt/job there, writable; serial.log, output.log
# and qemu.log are left in it. CMDFILE finds NETCLAIM_VM=1 and NETCLAIM_CACHE in its environment.
# /tmp, /run and /dev are the VM's own, but the project, the cache and NETCLAIM_BUILD are seen in it
# wherever they are.
set -euo pipefail
# shellcheck source=../debian.sh
. "$(dirname "$(realpath "$0")")/../debian.sh"

kernel='' initrd='' seconds=300 job='' extra=()
while getopts k:i:t:j:q: option; do
	case $option in
	k) kernel=$OPTARG ;;
	i) initrd=$OPTARG ;;
	t) seconds=$OPTARG ;;
	j) job=$OPTARG ;;
	q) read -ra extra <<<"$OPTARG" ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
if [ -z "$job" ]; then
	job=$(mktemp -d)
	trap 'rm -rf "$job"' EXIT
fi
mkdir -p "$job"
rm -f "$job/rc"
cp "$1" "$job/cmd"
# KVM must be asked for: inside another VM /dev/kvm may be there and not work
accel=${NETCLAIM_VM_ACCEL:-tcg,thread=multi}

# Directories that the VM's own mounts would hide; its init makes them appear.
root=$(realpath "$(dirname "$(realpath "$0")")/../..")
hidden=()
show() {
	local path known
	path=$(realpath -m "$1")
	[[ $path =~ ^/(tmp|run|dev)/ ]] || return 0
	for known in ${hidden[@]+"${hidden[@]}"}; do
		[[ $path/ != "$known"/* ]] || return 0
	done
	if [[ $path =~ [^A-Za-z0-9/._+@%=~-] ]]; then
		say "the VM cannot be shown $path: put it elsewhere, or under a name without such characters"
		exit 125
	fi
	hidden+=("$path")
}
show "$root"
show "$cache"
[ -z "${NETCLAIM_BUILD:-}" ] || show "$(cd "$root" && realpath -m "$NETCLAIM_BUILD")"

# what the kernel does not know it hands to its init as environment
environment="NETCLAIM_VM=1 NETCLAIM_CACHE=$cache"
[ ${#hidden[@]} = 0 ] || environment+=" NETCLAIM_SHOWN=$(IFS=:; echo "${hidden[*]}")"
say "booting kernel $(basename "$initrd" .cpio | cut -d- -f2-), ${accel%%,*}, at most $seconds s ..."
status=0
timeout "$seconds" qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
	-monitor none -accel "$accel" -M q35,kernel-irqchip=split -cpu max -smp 2 -m 2G \
	-kernel "$kernel" -initrd "$initrd" \
	-append "console=ttyS0 panic=-1 quiet mitigations=off intel_iommu=on random.trust_cpu=on $environment" \
	-serial file:"$job/serial.log" \
	"${extra[@]}" \
	-device virtio-serial-pci -device virtconsole,chardev=out \
	-chardev stdio,id=out,signal=off,logfile="$job/output.log" \
	-virtfs local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap \
	-virtfs local,path="$job",mount_tag=job,security_model=none \
	</dev/null 2>"$job/qemu.log" || status=$?

say "$(grep -ao 'vm: .*' "$job/serial.log" | tr -d '\r' | paste -sd';')"
if [ $status = 124 ]; then
	say "the VM did not end within $seconds s; the end of its kernel's log:"
	tail -20 "$job/serial.log" >&2
	exit 124
fi
[ -s "$job/rc" ] && exit "$(cat "$job/rc")"
say "the VM ended without a status (QEMU: $status)"
cat "$job/qemu.log" >&2
tail -20 "$job/serial.log" >&2
exit 125
