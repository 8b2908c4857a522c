# SPDX-License-Identifier: Apache-2.0
"""The certificates and keys of a cluster for tests, made with openssl."""
import datetime
import subprocess

# For openssl ca, which alone can make certificates that are valid for seconds.
BRIEF = """
[ca]
default_ca = brief
[brief]
database = {folder}/brief.index
new_certs_dir = {folder}
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
x509_extensions = client
[any]
organizationName = optional
commonName = supplied
[client]
basicConstraints = critical,CA:FALSE
extendedKeyUsage = clientAuth
"""


class Authority:
    """Makes those of one cluster, into a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.certificate = folder / "ca.crt"
        self._make("ca", "/CN=netclaim test", "-addext", "basicConstraints=critical,CA:TRUE")

    def _make(self, name, subject, *options):
        key, certificate = self.folder / f"{name}.key", self.folder / f"{name}.crt"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "2", "-subj", subject, "-keyout", key, "-out", certificate, *options],
                       check=True, capture_output=True)
        return certificate, key

    def _signed(self, name, subject, *options):
        return self._make(name, subject, "-CA", self.certificate, "-CAkey", self.folder / "ca.key",
                          "-addext", "basicConstraints=critical,CA:FALSE", *options)

    def server(self, name):
        """For whoever listens on this machine's loopback."""
        return self._signed(name, f"/CN={name}", "-addext", "extendedKeyUsage=serverAuth", "-addext",
                            "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1")

    def client(self, name, groups=()):
        """For the user of this name, in these groups: (certificate, key)."""
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={name}"
        return self._signed("client-" + name.replace(":", "-"), subject, "-addext", "extendedKeyUsage=clientAuth")

    def brief_client(self, name, group, seconds):
        """The same, valid for this many seconds."""
        key, request, certificate = (self.folder / f"brief-{name}.{suffix}" for suffix in ("key", "csr", "crt"))
        config = self.folder / "brief.conf"
        config.write_text(BRIEF.format(folder=self.folder))
        (self.folder / "brief.index").touch()
        until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
        subprocess.run(["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-subj", f"/O={group}/CN={name}", "-keyout", key, "-out", request], check=True, capture_output=True)
        subprocess.run(["openssl", "ca", "-batch", "-notext", "-config", config, "-cert", self.certificate, "-keyfile",
                        self.folder / "ca.key", "-enddate", until.strftime("%Y%m%d%H%M%SZ"), "-in", request,
                        "-out", certificate], check=True, capture_output=True)
        return certificate, key

    def service_account_key(self):
        private, public = self.folder / "service-account.key", self.folder / "service-account.pub"
        subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", private],
                       check=True, capture_output=True)
        subprocess.run(["openssl", "ec", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
        return private, public
