package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
)

// read is what the library makes of a request's metadata.
type read struct {
	// Version is the version of the first object of the stream that the library accepts.
	Version string `json:"version"`
	// Invalid is what the library's validation finds, "" if nothing, or if the library has none yet.
	Invalid string `json:"invalid"`
	// Metadata has the files of all drivers together.
	Metadata *metadata.DeviceMetadata `json:"metadata"`
}

// printMetadata reads a request's files where every container has them, by the functions for programs in containers.
func printMetadata(kind, name, request string) error {
	readers := map[string]func(string, string) (*metadata.DeviceMetadata, error){
		metadata.ResourceClaimsSubDir:         devicemetadata.ReadResourceClaimMetadata,
		metadata.ResourceClaimTemplatesSubDir: devicemetadata.ReadResourceClaimTemplateMetadata,
	}
	reader, ok := readers[kind]
	if !ok {
		return fmt.Errorf("kind %q is not known", kind)
	}
	merged, err := reader(name, request)
	if err != nil {
		return err
	}
	answer := read{Metadata: merged}
	files, err := filepath.Glob(filepath.Join(metadata.ContainerDir, kind, name, request, "*"+metadata.MetadataFileSuffix))
	if err != nil {
		return err
	}
	for _, path := range files {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		if answer.Version, answer.Invalid, err = check(json.NewDecoder(file)); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}
