//go:build dra136

package main

import (
	"encoding/json"

	"k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
)

// check decodes the one version that this library has; it validates nothing.
func check(decoder *json.Decoder) (string, string, error) {
	var decoded v1alpha1.DeviceMetadata
	err := devicemetadata.DecodeMetadataFromStream(decoder, &decoded)
	return decoded.APIVersion, "", err
}
