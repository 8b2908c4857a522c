/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The inventory of SR-IOV virtual functions, as PCI sysfs shows it
 * (Documentation/ABI/testing/sysfs-bus-pci): also those whose link is in a pod, and those that
 * have none.
 */

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* "0000:01:10.0"; a domain of a VMD controller has up to 8 digits (drivers/pci/controller/vmd.c) */
#define PCI_ADDR_SIZE 24
#define PCI_TEXT_SIZE 65 /* an attribute in a ResourceSlice has at most 64 bytes */

struct pci_pf {
	char addr[PCI_ADDR_SIZE];
	char name[IFNAMSIZ]; /* its link; "": none */
	char driver[PCI_TEXT_SIZE];
	unsigned total_vfs, num_vfs;
};

/* Names of links are as they are, which may be no UTF-8. */
struct pci_vf {
	char addr[PCI_ADDR_SIZE], pf_addr[PCI_ADDR_SIZE];
	char pf_name[IFNAMSIZ]; /* "": the physical function's link is not on the host */
	unsigned id;            /* N of the physical function's virtfnN */
	char driver[PCI_TEXT_SIZE], vendor[PCI_TEXT_SIZE], device_id[PCI_TEXT_SIZE];
	char if_name[IFNAMSIZ];        /* its link in the namespace of this sysfs; "": none */
	char pcie_root[PCI_TEXT_SIZE]; /* "pci0000:00"; "": unknown */
	int numa_node;                 /* -1: unknown */
	int64_t link_speed; /* of the physical function, Mb/s; -1: unknown, or down */
	int64_t pf_mtu;     /* of the physical function's link; -1: unknown */
	bool rdma;          /* it has an RDMA device */
};

struct pci_skipped {
	struct pci_vf vf; /* as far as it can be read */
	struct err why;
};

struct pci_scan {
	struct pci_vf *vfs; /* sorted by address */
	size_t n_vfs;
	struct pci_skipped *skipped; /* those that cannot be read */
	size_t n_skipped;
};

/* A descriptor of sysfs, for the functions below. */
int pci_open(const char *root, struct err *err);
/* *ret is for pci_scan_fini(). */
int pci_scan(int sys_fd, struct pci_scan *ret, struct err *err);
void pci_scan_fini(struct pci_scan *scan);
/* Also of those that were skipped. NULL: there was none of this address. */
const struct pci_vf *pci_scan_find(const struct pci_scan *scan, const char *addr);
/* One, as it is now. ERR_NOT_FOUND: it is no more, or no virtual function. */
int pci_vf_read(int sys_fd, const char *addr, struct pci_vf *ret, struct err *err);

enum pci_kind {
	PCI_OTHER, /* or nothing */
	PCI_PF,    /* it can have virtual functions */
	PCI_VF,
};
/* What this address is now and, of a virtual function, the name of its link; "": none. */
enum pci_kind pci_look(int sys_fd, const char *addr, char if_name[static IFNAMSIZ]);
/* Whether a function with this driver never has a link: vfio-pci and its like. */
bool pci_driver_has_no_link(const char *driver);
int pci_pf_read(int sys_fd, const char *addr, struct pci_pf *ret, struct err *err);
/* The physical function whose link this is. ERR_NOT_FOUND. */
int pci_pf_by_name(int sys_fd, const char *if_name, struct pci_pf *ret, struct err *err);

/* Whether it is written as the kernel writes one. */
bool pci_addr_ok(const char *addr);
/* "0000:03:00.1" -> "0000-03-00-1" */
void pci_device_name(const char *addr, char out[static PCI_ADDR_SIZE]);
