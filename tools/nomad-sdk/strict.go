package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"sort"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// The types of answers. One whose name begins with `~` leaves empty fields out.
var types = map[string]any{
	"jobs":         []*api.JobListStub{},
	"job":          &api.Job{},
	"summary":      &api.JobSummary{},
	"versions":     &api.JobVersionsResponse{},
	"scale":        &api.JobScaleStatusResponse{},
	"evaluations":  []*api.Evaluation{},
	"evaluation":   &api.Evaluation{},
	"deployments":  []*api.Deployment{},
	"deployment":   &api.Deployment{},
	"allocations":  []*api.AllocationListStub{},
	"~allocations": []*api.Allocation{},
	"~allocation":  &api.Allocation{},
	"nodes":        []*api.NodeListStub{},
	"node":         &api.Node{},
	"volumes":      []*api.CSIVolumeListStub{},
	"volume":       &api.CSIVolume{},
	"hostvolumes":  []*api.HostVolumeStub{},
	"hostvolume":   &api.HostVolume{},
	"plugins":      []*api.CSIPluginListStub{},
	"plugin":       &api.CSIPlugin{},
	"namespaces":   []*api.Namespace{},
	"regions":      []string{},
	"self":         &api.AgentSelf{},
	"members":      &api.ServerMembers{},
	"scheduler":    &api.SchedulerConfigurationResponse{},
	"policies":     []*api.ScalingPolicyListStub{},
	"policy":       &api.ScalingPolicy{},
	"pools":        []*api.NodePool{},
	"pool":         &api.NodePool{},
	"token":        &api.ACLToken{},
	"stats":        &api.AllocResourceUsage{},
	"files":        []*api.AllocFileInfo{},
	"file":         &api.AllocFileInfo{},
	"methods":      []*api.ACLAuthMethodListStub{},
}

func body(client *api.Client, path string) ([]byte, error) {
	reader, err := client.Raw().Response(path, &api.QueryOptions{})
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	return io.ReadAll(reader)
}

// faults of an answer: keys that the type does not know, keys of the type that are not there, values of other types.
func faults(kind string, body []byte) []string {
	model, known := types[kind]
	if !known {
		return []string{"no type " + kind}
	}
	target := reflect.New(reflect.TypeOf(model))
	decoder := json.NewDecoder(bytes.NewReader(body))
	found := map[string]bool{}
	if err := decoder.Decode(target.Interface()); err != nil {
		found[err.Error()] = true
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		found[err.Error()] = true
	}
	if list, is := value.([]any); is && len(list) == 0 {
		found["the list is empty: nothing was compared"] = true
	}
	compare("", reflect.TypeOf(model), value, strings.HasPrefix(kind, "~"), found)
	var all []string
	for fault := range found {
		all = append(all, fault)
	}
	sort.Strings(all)
	return all
}

// In these and below an unset key is left out: groups are as in job files, and events have what they tell of in Details.
var sparse = map[reflect.Type]bool{reflect.TypeOf(api.TaskGroup{}): true, reflect.TypeOf(api.TaskEvent{}): true}

// What drover does not have of a job: parts of other systems and of other editions, and what it keeps nowhere.
var absent = map[string]bool{
	"VaultNamespace": true, "ConsulNamespace": true, "NomadTokenID": true, "DispatchIdempotencyToken": true,
	"UI": true, "VersionTag": true, "Migrate": true, "Reschedule": true,
}

// What the specification of the API has, or drover alone, and the library does not read.
var beyond = map[string]bool{"DesiredTransition": true, "HostVolumes": true, "AllocStates": true, "Rolling": true}

var meta = reflect.TypeOf(api.QueryMeta{})

var unmarshaler = reflect.TypeOf((*json.Unmarshaler)(nil)).Elem()

func compare(at string, t reflect.Type, value any, isSparse bool, found map[string]bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil {
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		object, is := value.(map[string]any)
		if !is {
			// A time, or something else that reads itself.
			if !reflect.PointerTo(t).Implements(unmarshaler) {
				found[fmt.Sprintf("%s is no object", at)] = true
			}
			return
		}
		fields := map[string]reflect.StructField{}
		optional := map[string]bool{}
		fieldsOf(t, fields, optional)
		isSparse = isSparse || sparse[t]
		isJob := t == reflect.TypeOf(api.Job{})
		for key, inner := range object {
			field, known := fields[key]
			if !known && beyond[key] {
				continue
			}
			if !known {
				found[fmt.Sprintf("unknown %s.%s", at, key)] = true
				continue
			}
			compare(at+"."+key, field.Type, inner, isSparse, found)
		}
		for key := range fields {
			if _, is := object[key]; !is && !optional[key] && !isSparse && !(isJob && absent[key]) {
				found[fmt.Sprintf("missing %s.%s", at, key)] = true
			}
		}
	case reflect.Map:
		if object, is := value.(map[string]any); is {
			for _, inner := range object {
				compare(at+"{}", t.Elem(), inner, isSparse, found)
			}
		}
	case reflect.Slice:
		if list, is := value.([]any); is {
			for _, inner := range list {
				compare(at+"[]", t.Elem(), inner, isSparse, found)
			}
		}
	}
}

func fieldsOf(t reflect.Type, fields map[string]reflect.StructField, optional map[string]bool) {
	for n := range t.NumField() {
		field := t.Field(n)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" || (!field.IsExported() && !field.Anonymous) {
			continue
		}
		inner := field.Type
		for inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if field.Anonymous && name == "" && inner.Kind() == reflect.Struct {
			fieldsOf(inner, fields, optional)
			if inner == meta {
				// It is read from the headers.
				of := map[string]reflect.StructField{}
				fieldsOf(inner, of, map[string]bool{})
				for name := range of {
					optional[name] = true
				}
			}
			continue
		}
		if name == "" {
			name = field.Name
		}
		fields[name] = field
		optional[name] = strings.Contains(options, "omitempty")
	}
}
