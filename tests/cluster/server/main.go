// SPDX-License-Identifier: Apache-2.0

// The servers of a Kubernetes control plane in one program. Its first argument says which of them it
// is, all others are that server's own. Every server is the one that its project releases: what is
// here does no more than their own main functions do. One program and not four because nearly all
// of what they are made of is the same, and linking it is slow.
package main

import (
	"fmt"
	"os"
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// A server's command is made only for the server that is asked for: making it registers its flags
// and feature gates for the whole process.
var servers = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "which server: etcd, kube-apiserver, kube-controller-manager or kube-scheduler?")
		os.Exit(2)
	}
	os.Args = os.Args[1:]
	name := os.Args[0]
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	command, ok := servers[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "there is no server '%s' here\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
