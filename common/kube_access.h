/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where the API server is and who we are to it: from a kubeconfig file, or from what the
 * kubelet puts into a container.
 *
 * The server and what else stands in the kubeconfig itself is read once, while the process still may
 * read any file. Other files are remembered by their paths, since they are replaced while we run: a
 * token's by the kubelet (KEP-1205), certificates and keys by what renews them. The client reads
 * them again.
 */

#include <stdbool.h>

#include "common/err.h"

struct kube_reader;

/* What comes from a file. */
enum kube_file { KUBE_FILE_CA, KUBE_FILE_CERT, KUBE_FILE_KEY, KUBE_FILES };

struct kube_access {
	char *server;      /* "https://10.96.0.1:443", without a slash at the end */
	char *description; /* for people: "https://10.96.0.1:443 (kubeconfig /etc/…)" */
	/* PEM texts. ca NULL: the system's certificate authorities. cert and key: both or
	 * neither. */
	char *ca, *cert, *key;
	char *tls_server_name; /* NULL: the host of server */
	char *token;           /* NULL: none, or token_file */
	char *token_file;      /* has precedence over token, as in client-go */
	/* Where ca, cert and key were read from; NULL: they stand in the kubeconfig. */
	char *files[KUBE_FILES];
	/* A service account: a process that may read its token may read its files. */
	bool in_cluster;
	struct kube_reader *reader; /* that opens them again; NULL: the process itself does */
};

/* The file as kubectl has it: its current-context, or the one named. Data beside names of files
 * wins (certificate-authority-data over certificate-authority, ...); names of files are
 * relative to the kubeconfig's directory. Refused, with the field's place in the file: an exec
 * or auth-provider plugin, user name and password, impersonation, insecure-skip-tls-verify, a
 * proxy-url, a server that is not https. ERR_NOT_FOUND when the file is not there. *ret is
 * overwritten. */
int kube_access_file(
	const char *path, const char *context, struct kube_access *ret, struct err *err);

/* The same of a document that is at hand. */
struct doc;
int kube_access_decode(
	const struct doc *doc, const char *context, struct kube_access *ret, struct err *err);

#define KUBE_SERVICE_ACCOUNT_DIR "/var/run/secrets/kubernetes.io/serviceaccount"

/* From KUBERNETES_SERVICE_HOST and _PORT and the service account's directory (NULL: the usual
 * one). ERR_NOT_FOUND when this is no container of a cluster. *ret is overwritten. */
int kube_access_in_cluster(const char *directory, struct kube_access *ret, struct err *err);

/* When the process is root, which it will not stay, and files have names: starts the reader
 * (kube_reader.h). To be called before privileges are dropped, with one thread. */
int kube_access_start_reader(struct kube_access *access, struct err *err);
/* A whole file that is open, the caller's to wipe. ERR_INVALID: there is no PEM in it. */
int kube_access_read_pem(int fd, char **ret, struct err *err);

void kube_access_fini(struct kube_access *access); /* keys are wiped */
