// Answers which CDI devices a runtime with this version of the CDI library would give a container.
//
// The library's own cache watches the folder that is the argument. Each line of standard input names a device; the
// answer is a line with "ok" or the library's error, as a runtime has it when it makes a container.
package main

import (
	"bufio"
	"fmt"
	"os"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

func main() {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(os.Args[1]))
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	for devices := bufio.NewScanner(os.Stdin); devices.Scan(); {
		if _, err := cache.InjectDevices(&oci.Spec{}, devices.Text()); err != nil {
			fmt.Println(err)
		} else {
			fmt.Println("ok")
		}
	}
}
