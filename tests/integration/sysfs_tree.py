# SPDX-License-Identifier: Apache-2.0
"""A sysfs of PCI devices that never were, for `--sysfs-root`: made of directories, files and symbolic links as the
kernel has them, changed while a daemon looks at it."""
import pathlib
import shutil

BRIDGE = "0000:00:01.0"


class SysfsTree:
    """Below path, which is made. Addresses are texts, indexes numbers: virtfn<index>.

    Devices are directories in devices/pci0000:00/0000:00:01.0, linked from bus/pci/devices. What is None is not
    there. An entry comes and goes whole: bus/pci/devices/<addr> is the last that is made and the first that is
    removed."""

    def __init__(self, path, root="pci0000:00"):
        self.path = pathlib.Path(path)
        self.devices = self.path / "bus/pci/devices"
        self.drivers = self.path / "bus/pci/drivers"
        self._behind = f"devices/{root}/{BRIDGE}"
        for directory in (self.devices, self.drivers, self.path / self._behind):
            directory.mkdir(parents=True)

    def dir(self, addr):
        """Where a device's files are."""
        return self.path / self._behind / addr

    def set(self, addr, **files):
        """Contents of a device's files, as text or bytes; None: no such file."""
        for name, content in files.items():
            self.write(f"{self._behind}/{addr}/{name}", content)

    def write(self, path, content):
        """The same for any path below the tree."""
        file = self.path / path
        if content is None:
            file.unlink(missing_ok=True)
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())

    def bind(self, addr, driver):
        """Its driver; None: none is bound."""
        link = self.dir(addr) / "driver"
        link.unlink(missing_ok=True)
        if driver is not None:
            (self.drivers / driver).mkdir(exist_ok=True)
            link.symlink_to(f"../../../../bus/pci/drivers/{driver}")

    def device(self, addr, driver=None, name=None, **files):
        """Any PCI function."""
        self.dir(addr).mkdir()
        self.set(addr, **{"class": "0x020000", "vendor": "0x8086", "numa_node": -1, **files})
        self.bind(addr, driver)
        if name is not None:
            self.add_netdev(addr, name)

    def pf(self, addr, name, total, numvfs=0, driver="igb", **files):
        """A physical function. Its virtual functions are others' to make, whatever numvfs says."""
        self.device(addr, driver, name, **{"device": "0x10c9", "sriov_totalvfs": total, "sriov_numvfs": numvfs, **files})
        if name is not None:
            self.set_netdev(addr, name, speed=1000)
        self._show(addr)

    def vf(self, pf_addr, index, addr, name=None, driver="igbvf", vendor="0x8086", device="0x10ca", **files):
        """A virtual function; name: its link's, None when it has none, or has it in a pod."""
        self.device(addr, driver, name, **{"vendor": vendor, "device": device, **files})
        (self.dir(addr) / "physfn").symlink_to(f"../{pf_addr}")
        (self.dir(pf_addr) / f"virtfn{index}").symlink_to(f"../{addr}")
        self._show(addr)

    def _show(self, addr):
        (self.devices / addr).symlink_to(f"../../../{self._behind}/{addr}")

    def remove(self, addr):
        """A device, with the link of its physical function to it."""
        (self.devices / addr).unlink()
        physfn = self.dir(addr) / "physfn"
        if physfn.is_symlink():
            for link in self.dir(physfn.readlink().name).glob("virtfn*"):
                if link.readlink().name == addr:
                    link.unlink()
        shutil.rmtree(self.dir(addr))

    def add_netdev(self, addr, name, dev_port=0, below=None, bus=None, **files):
        """below: the device of another bus that it is behind, like virtio3; bus: which one."""
        device = addr if below is None else f"{addr}/{below}"
        (self.dir(device) / "net" / name).mkdir(parents=True)
        if bus is not None:
            (self.dir(device) / "subsystem").symlink_to(f"../../../../../bus/{bus}")
        self.set_netdev(device, name, dev_port=dev_port, **files)

    def set_netdev(self, addr, name, **files):
        """Contents of files of a link: speed, mtu, dev_port, phys_port_name."""
        for file, content in files.items():
            self.write(f"{self._behind}/{addr}/net/{name}/{file}", content)

    def remove_netdev(self, addr, name):
        """It moved to another namespace; without a link there is no net/ either."""
        net = self.dir(addr) / "net"
        shutil.rmtree(net / name)
        if not any(net.iterdir()):
            net.rmdir()

    def rename_netdev(self, addr, old, new):
        net = self.dir(addr) / "net"
        (net / old).rename(net / new)

    def add_rdma(self, addr, name="mlx5_0"):
        (self.dir(addr) / "infiniband" / name).mkdir(parents=True)

    def num_vfs(self, addr):
        """What sriov_numvfs says, as a number."""
        return int((self.dir(addr) / "sriov_numvfs").read_text(encoding="utf-8"))
