//go:build !dra136 && !dra137

package main

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	draapi "k8s.io/dynamic-resource-allocation/api"
	"k8s.io/dynamic-resource-allocation/structured"
)

// features are those of the scheduler by default.
var features = structured.Features{
	AdminAccess:             true,
	PrioritizedList:         true,
	PartitionableDevices:    true,
	DeviceTaints:            true,
	DeviceBindingAndStatus:  true,
	ConsumableCapacity:      true,
	FractionalCapacityRange: true,
}

func emptyState() structured.AllocatedState {
	return structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.DeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
}

func share(state *structured.AllocatedState, device structured.DeviceID, _ *types.UID) {
	state.AllocatedSharedDeviceIDs.Insert(device)
}

func convertSlices(slices []resourceapi.ResourceSlice) ([]*draapi.ResourceSlice, error) {
	converted := make([]*draapi.ResourceSlice, len(slices))
	for i := range slices {
		converted[i] = &draapi.ResourceSlice{}
		if err := draapi.Convert_v1_ResourceSlice_To_api_ResourceSlice(&slices[i], converted[i], nil); err != nil {
			return nil, err
		}
	}
	return converted, nil
}
