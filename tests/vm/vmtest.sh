#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# vmtest.sh CMDFILE [-t SECONDS] [-j JOBDIR] [-q QEMU_ARGS]
# Runs CMDFILE in a VM with a current Debian kernel, see vmrun.sh. QEMU and the kernel are fetched
# when they are not there yet. Ends with CMDFILE's status; with 77 if the VM cannot be had.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
# shellcheck source=../debian.sh
. "$here/../debian.sh"

modules=(9p 9pnet_virtio overlay virtio_net dummy veth bridge 8021q macvlan ipvlan ifb igb igbvf
	vfio-pci)

[ $# -ge 1 ] || { sed -n 3,5p "$0" >&2; exit 2; }
command=$(realpath "$1")
shift

for tool in cpio modinfo xz; do
	command -v "$tool" >/dev/null || cannot "$tool is missing: make test-deps"
done
[ -x /bin/busybox ] || cannot "busybox is missing: make test-deps"

dir=$cache/vm
mkdir -p "$dir"
# two runs at once must not both fill the cache
exec {lock}>"$dir/lock"
flock "$lock"
"$here/get-qemu.sh"
# a look a day for a newer kernel is enough, and a cached one does without a network
if [ ! -s "$dir/version" ] || [ -n "$(find "$dir/version" -mtime +0)" ]; then
	status=0
	"$here/fetch-kernel.sh" "$dir" || status=$?
	[ -s "$dir/version" ] || exit "$status"
	touch "$dir/version"
fi
# the cache may serve several checkouts, each with an init of its own
sum=$(cat "$here"/{init,mkinitramfs.sh,vmtest.sh} /bin/busybox | cksum | cut -d' ' -f1)
initrd=$dir/initrd.$sum-$(cat "$dir/version").cpio
if [ ! -s "$initrd" ]; then
	say "making the initramfs ..."
	find "$dir" -maxdepth 1 -name 'initrd*' -mtime +0 -delete
	"$here/mkinitramfs.sh" "$dir/modules" "$initrd.new" "$here/init" "${modules[@]}"
	mv "$initrd.new" "$initrd"
fi
flock -u "$lock"
# two adapters with 7 virtual functions each, on one wire; an IOMMU for vfio-pci, before all that is
# behind it
devices="-device intel-iommu,intremap=on,device-iotlb=on"
for n in 1 2; do
	devices+=" -device pcie-root-port,id=rp$n,chassis=$n,slot=$n -netdev hubport,id=wire$n,hubid=0"
	devices+=" -device igb,bus=rp$n,netdev=wire$n,mac=52:54:00:00:00:0$n"
done
exec "$here/vmrun.sh" -k "$dir/vmlinuz" -i "$initrd" -q "$devices" "$@" "$command"
