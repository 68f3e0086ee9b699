// Runs parts of Kubernetes' library for DRA (k8s.io/dynamic-resource-allocation) of one version, for comparison.
//
//	dra-library metadata KIND NAME REQUEST   in a container: print the metadata that the library reads of a request
//	dra-library allocate                     allocate claims as the scheduler: a case per line in, its steps out
package main

import (
	"fmt"
	"os"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 5 && os.Args[1] == "metadata":
		err = printMetadata(os.Args[2], os.Args[3], os.Args[4])
	case len(os.Args) == 2 && os.Args[1] == "allocate":
		err = allocateAll(os.Stdin, os.Stdout)
	default:
		err = fmt.Errorf("usage: %s metadata KIND NAME REQUEST | allocate", os.Args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
