// Only says where the module begins: each version of Kubernetes has a file of its own, such as
// v1.34.4.mod, which go takes with -modfile.
module netclaim/tests/cluster/server
