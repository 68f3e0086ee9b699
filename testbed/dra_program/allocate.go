package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// The scheduler's own limit (DynamicResourcesArgs.filterTimeout) is 10 s; a machine under load shall not decide.
const timeout = 5 * time.Minute

// input is a node with its devices, and the pods that come and go there.
type input struct {
	Node    corev1.Node                 `json:"node"`
	Slices  []resourceapi.ResourceSlice `json:"slices"`
	Classes []resourceapi.DeviceClass   `json:"classes"`
	Steps   []step                      `json:"steps"`
}

// step is a pod that comes with claims, or a pod that leaves.
type step struct {
	Pod    string                      `json:"pod"`
	Claims []resourceapi.ResourceClaim `json:"claims"`
	Leaves string                      `json:"leaves"`
}

// outcome is the answer to a step: "fits", "does not fit" or "given up", as the scheduler takes it.
type outcome struct {
	Decision    string                         `json:"decision"`
	Reason      string                         `json:"reason,omitempty"`
	Allocations []resourceapi.AllocationResult `json:"allocations,omitempty"`
}

// classes are the device classes of a case.
type classes []resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	listed := make([]*resourceapi.DeviceClass, len(c))
	for i := range c {
		listed[i] = &c[i]
	}
	return listed, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for i := range c {
		if c[i].Name == name {
			return &c[i], nil
		}
	}
	return nil, fmt.Errorf("DeviceClass %q not found", name)
}

func allocateAll(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	answers := json.NewEncoder(out)
	cache := cel.NewCache(100, cel.Features{EnableConsumableCapacity: true})
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var played input
			if err := json.Unmarshal(line, &played); err != nil {
				return err
			}
			outcomes, err := play(&played, cache)
			if err != nil {
				return err
			}
			if err := answers.Encode(outcomes); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// play answers each step with what the library did in the steps before.
func play(played *input, cache *cel.Cache) ([]outcome, error) {
	held := map[string][]resourceapi.AllocationResult{}
	outcomes := make([]outcome, 0, len(played.Steps))
	for i := range played.Steps {
		current := &played.Steps[i]
		if current.Leaves != "" {
			delete(held, current.Leaves)
			outcomes = append(outcomes, outcome{})
			continue
		}
		state := newState(held)
		allocations, err := allocate(played, current, state, cache)
		switch {
		case err != nil && !errors.Is(err, structured.ErrFailedAllocationOnNode):
			outcomes = append(outcomes, outcome{Decision: "given up", Reason: err.Error()})
		case len(allocations) != len(current.Claims):
			reason := ""
			if err != nil {
				reason = err.Error()
			}
			outcomes = append(outcomes, outcome{Decision: "does not fit", Reason: reason})
		default:
			held[current.Pod] = allocations
			outcomes = append(outcomes, outcome{Decision: "fits", Allocations: allocations})
		}
	}
	return outcomes, nil
}

func allocate(
	played *input, current *step, state structured.AllocatedState, cache *cel.Cache,
) ([]resourceapi.AllocationResult, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	slices, err := convertSlices(played.Slices)
	if err != nil {
		return nil, err
	}
	allocator, err := structured.NewAllocator(ctx, features, state, classes(played.Classes), slices, cache)
	if err != nil {
		return nil, err
	}
	claims := make([]*resourceapi.ResourceClaim, len(current.Claims))
	for i := range current.Claims {
		claims[i] = &current.Claims[i]
		defaultClaim(claims[i])
	}
	return allocator.Allocate(ctx, &played.Node, claims)
}

// defaultClaim sets what the API server does (pkg/apis/resource/v1, SetDefaults).
func defaultClaim(claim *resourceapi.ResourceClaim) {
	mode := func(mode *resourceapi.DeviceAllocationMode, count *int64) {
		if *mode == "" {
			*mode = resourceapi.DeviceAllocationModeExactCount
		}
		if *mode == resourceapi.DeviceAllocationModeExactCount && *count == 0 {
			*count = 1
		}
	}
	tolerate := func(tolerations []resourceapi.DeviceToleration) {
		for i := range tolerations {
			if tolerations[i].Operator == "" {
				tolerations[i].Operator = resourceapi.DeviceTolerationOpEqual
			}
		}
	}
	for i := range claim.Spec.Devices.Requests {
		request := &claim.Spec.Devices.Requests[i]
		if request.Exactly != nil {
			mode(&request.Exactly.AllocationMode, &request.Exactly.Count)
			tolerate(request.Exactly.Tolerations)
		}
		for j := range request.FirstAvailable {
			mode(&request.FirstAvailable[j].AllocationMode, &request.FirstAvailable[j].Count)
			tolerate(request.FirstAvailable[j].Tolerations)
		}
	}
}

// newState is what is allocated to pods, as the scheduler gathers it of claims (dynamicresources/allocateddevices.go).
func newState(held map[string][]resourceapi.AllocationResult) structured.AllocatedState {
	state := emptyState()
	for _, allocations := range held {
		for _, allocation := range allocations {
			for _, result := range allocation.Devices.Results {
				if result.AdminAccess != nil && *result.AdminAccess {
					continue
				}
				device := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
				if result.ShareID == nil {
					state.AllocatedDevices.Insert(device)
					continue
				}
				share(&state, device, result.ShareID)
				if result.ConsumedCapacity != nil {
					consumed := structured.NewDeviceConsumedCapacity(device, result.ConsumedCapacity)
					state.AggregatedCapacity.Insert(consumed)
				}
			}
		}
	}
	return state
}
