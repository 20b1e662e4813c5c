// Renders templates with consul-template itself: one case a line on standard input, one answer a line on standard output.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"
	"sort"
	"strings"

	dep "github.com/hashicorp/consul-template/dependency"
	"github.com/hashicorp/consul-template/template"
	"github.com/hashicorp/nomad/api"
)

type instance struct {
	ID, Name, Node, Address, Datacenter, JobID, AllocID string
	Port                                               int
	Tags                                               []string
}

type request struct {
	Template, Left, Right string
	ErrMissingKey         bool
	Env                   map[string]string
	Secrets, ConfigMaps   map[string]map[string]string
	Services              map[string][]instance
}

type answer struct {
	Text    []byte
	Error   string
	Missing []string
}

func remember(brain *template.Brain, d dep.Dependency, err error, value any) {
	if err == nil {
		brain.Remember(d, value)
	}
}

func brainOf(r *request) *template.Brain {
	brain := template.NewBrain()
	for name, keys := range r.ConfigMaps {
		path := strings.ReplaceAll(name, ".", "/")
		pairs := []*dep.KeyPair{}
		for key, value := range keys {
			pairs = append(pairs, &dep.KeyPair{Path: path + "/" + key, Key: key, Value: value})
			blocking, err := dep.NewKVGetQuery(path + "/" + key)
			if err == nil {
				blocking.EnableBlocking()
			}
			remember(brain, blocking, err, value)
			plain, err := dep.NewKVGetQuery(path + "/" + key)
			remember(brain, plain, err, value)
		}
		sort.Slice(pairs, func(a, b int) bool { return pairs[a].Key < pairs[b].Key })
		list, err := dep.NewKVListQuery(path)
		remember(brain, list, err, pairs)
	}
	for name, keys := range r.Secrets {
		path := strings.ReplaceAll(name, ".", "/")
		data, inner := map[string]any{}, map[string]any{}
		items := api.VariableItems{}
		for key, value := range keys {
			data[key], inner[key], items[key] = value, value, value
		}
		data["data"] = inner
		for _, path := range []string{path, name} {
			read, err := dep.NewVaultReadQuery(path)
			remember(brain, read, err, &dep.Secret{Data: data})
			variable := dep.NewNomadVariable(&api.Variable{Namespace: "default", Path: path, Items: items})
			for _, isBlocking := range []bool{false, true} {
				query, err := dep.NewNVGetQuery("default", path)
				if isBlocking && err == nil {
					query.EnableBlocking()
				}
				remember(brain, query, err, &variable.Items)
			}
		}
	}
	for name, instances := range r.Services {
		list := []*dep.NomadService{}
		for _, i := range instances {
			list = append(list, &dep.NomadService{ID: i.ID, Name: name, Node: i.Node, Address: i.Address, Port: i.Port,
				Datacenter: i.Datacenter, Tags: i.Tags, JobID: i.JobID, AllocID: i.AllocID})
		}
		query, err := dep.NewNomadServiceQuery(name)
		remember(brain, query, err, list)
	}
	return brain
}

func render(r *request) (out answer) {
	made, err := template.NewTemplate(&template.NewTemplateInput{Contents: r.Template, LeftDelim: r.Left, RightDelim: r.Right,
		ErrMissingKey: r.ErrMissingKey, FunctionDenylist: []string{"plugin", "writeToFile", "executeTemplate"}})
	if err != nil {
		return answer{Error: err.Error()}
	}
	env := []string{}
	for name, value := range r.Env {
		env = append(env, name+"="+value)
	}
	result, err := made.Execute(&template.ExecuteInput{Brain: brainOf(r), Env: env})
	if err != nil {
		return answer{Error: err.Error()}
	}
	for _, missing := range result.Missing.List() {
		out.Missing = append(out.Missing, missing.String())
	}
	out.Text = result.Output
	return out
}

func main() {
	log.SetOutput(os.Stderr)
	os.Clearenv()
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var r request
		if in.Decode(&r) != nil {
			return
		}
		if err := out.Encode(render(&r)); err != nil {
			log.Fatal(err)
		}
	}
}
