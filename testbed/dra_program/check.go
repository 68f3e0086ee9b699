//go:build !dra136

package main

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
)

// check decodes the newest version that this library has, and validates it.
func check(decoder *json.Decoder) (string, string, error) {
	var (
		decoded metadata.DeviceMetadata
		kind    schema.GroupVersionKind
		invalid error
	)
	err := devicemetadata.DecodeMetadataFromStream(
		decoder, &decoded,
		devicemetadata.DecodeMetadataWithValidationResult(&invalid), devicemetadata.DecodeMetadataStoreGVKResult(&kind),
	)
	found := ""
	if invalid != nil {
		found = invalid.Error()
	}
	return kind.GroupVersion().String(), found, err
}
