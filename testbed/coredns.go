// The cluster's DNS server, CoreDNS, with the plugins that answer for Services and nothing else.
//
// Built by testbed.build from the module of CoreDNS; a program of its own chooses the plugins, and their order.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	dnsserver.Directives = []string{"bind", "ready", "errors", "kubernetes"}
	coremain.Run()
}
