//go:build dra136 || dra137

package main

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
)

// features are those of the scheduler by default.
var features = structured.Features{
	AdminAccess:            true,
	PrioritizedList:        true,
	PartitionableDevices:   true,
	DeviceTaints:           true,
	DeviceBindingAndStatus: true,
	ConsumableCapacity:     true,
}

func emptyState() structured.AllocatedState {
	return structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
}

func share(state *structured.AllocatedState, device structured.DeviceID, id *types.UID) {
	state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(device, id))
}

func convertSlices(slices []resourceapi.ResourceSlice) ([]*resourceapi.ResourceSlice, error) {
	converted := make([]*resourceapi.ResourceSlice, len(slices))
	for i := range slices {
		converted[i] = &slices[i]
	}
	return converted, nil
}
