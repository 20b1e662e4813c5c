package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// The longest that a flow waits for one thing.
const patience = 2 * time.Minute

// must ends the program when a step of a flow fails.
func must(step string, err error) {
	if err != nil {
		log.Fatalf("%s: %v", step, err)
	}
}

// check ends the program when a step of a flow finds something else.
func check(step string, holds bool, found any) {
	if !holds {
		log.Fatalf("%s: found %v", step, found)
	}
}

// pointer to a value.
func pointer[T any](value T) *T { return &value }

// wait asks again with the index of the answer before, as clients of Nomad wait, until a step is done.
func wait(step string, ask func(options *api.QueryOptions) (bool, *api.QueryMeta, error)) {
	options := &api.QueryOptions{WaitTime: 10 * time.Second}
	for begun := time.Now(); time.Since(begun) < patience; {
		isDone, meta, err := ask(options)
		must(step, err)
		if isDone {
			return
		}
		options.WaitIndex = meta.LastIndex
	}
	log.Fatalf("%s: not within %v", step, patience)
}

// follow waits for an evaluation, and then for its deployment.
func follow(client *api.Client, id string) {
	var deployment string
	wait("evaluation", func(options *api.QueryOptions) (bool, *api.QueryMeta, error) {
		found, meta, err := client.Evaluations().Info(id, options)
		if err != nil {
			return false, nil, err
		}
		deployment = found.DeploymentID
		return found.Status == "complete", meta, nil
	})
	if deployment == "" {
		return
	}
	wait("deployment", func(options *api.QueryOptions) (bool, *api.QueryMeta, error) {
		found, meta, err := client.Deployments().Info(deployment, options)
		if err != nil {
			return false, nil, err
		}
		return found.Status == "successful", meta, nil
	})
}

// source reads the job file that a flow is about.
func source() string {
	text, err := io.ReadAll(os.Stdin)
	must("reading the job file", err)
	return string(text)
}

// terraform does what its provider does with a job: it is planned, made, read back, changed and taken away.
func terraform(client *api.Client) {
	text := source()
	self, err := client.Agent().Self()
	must("agent", err)
	check("region", self.Config["Region"] == "global", self.Config["Region"])
	job, err := client.Jobs().ParseHCLOpts(&api.JobsParseRequest{JobHCL: text, Canonicalize: true})
	must("parse", err)
	apply := func(index uint64, text string) *api.JobRegisterResponse {
		plan, _, err := client.Jobs().PlanOpts(job, &api.PlanOptions{Diff: true}, nil)
		must("plan", err)
		check("index of the plan", plan.JobModifyIndex == index, plan.JobModifyIndex)
		check("difference", plan.Diff.Type != "None", plan.Diff)
		options := &api.RegisterOptions{EnforceIndex: true, ModifyIndex: index,
			Submission: &api.JobSubmission{Source: text, Format: "hcl2"}}
		answer, _, err := client.Jobs().RegisterOpts(job, options, nil)
		must("register", err)
		follow(client, answer.EvalID)
		return answer
	}
	made := apply(0, text)
	read, _, err := client.Jobs().Info(*job.ID, nil)
	must("read", err)
	check("status", *read.Status == "running", *read.Status)
	allocations, _, err := client.Jobs().Allocations(*job.ID, false, nil)
	must("allocations", err)
	check("allocations", len(allocations) == *job.TaskGroups[0].Count, len(allocations))
	kept, _, err := client.Jobs().Submission(*job.ID, int(*read.Version), nil)
	must("source", err)
	check("source", kept.Source == text && kept.Format == "hcl2", kept)

	job.TaskGroups[0].Count = pointer(*job.TaskGroups[0].Count + 1)
	changed := apply(made.JobModifyIndex, text+"\n# one more")
	check("index", changed.JobModifyIndex > made.JobModifyIndex, changed.JobModifyIndex)
	kept, _, err = client.Jobs().Submission(*job.ID, int(*read.Version)+1, nil)
	must("source", err)
	check("source", strings.HasSuffix(kept.Source, "# one more"), kept)
	// Who planned on an older state is refused.
	_, _, err = client.Jobs().EnforceRegister(job, made.JobModifyIndex, nil)
	check("old index", err != nil && strings.Contains(err.Error(), api.RegisterEnforceIndexErrPrefix), err)

	id, _, err := client.Jobs().Deregister(*job.ID, true, nil)
	must("deregister", err)
	follow(client, id)
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		_, _, err = client.Jobs().Info(*job.ID, nil)
		if refused, is := err.(api.UnexpectedResponseError); is && refused.StatusCode() == http.StatusNotFound {
			break
		}
		check("the job is gone", time.Since(begun) < patience, err)
	}
	fmt.Println("complete")
}

// autoscaler does what it does with a policy, and with the nodes that it takes away.
func autoscaler(client *api.Client) {
	job, err := client.Jobs().ParseHCL(source(), true)
	must("parse", err)
	made, _, err := client.Jobs().Register(job, nil)
	must("register", err)
	follow(client, made.EvalID)
	var id string
	wait("policies", func(options *api.QueryOptions) (bool, *api.QueryMeta, error) {
		policies, meta, err := client.Scaling().ListPolicies(options)
		for _, policy := range policies {
			if policy.Target["Job"] == *job.ID {
				id = policy.ID
			}
		}
		return id != "", meta, err
	})
	policy, meta, err := client.Scaling().GetPolicy(id, nil)
	must("policy", err)
	most := int(*policy.Max)
	group := policy.Target["Group"]
	check("policy", policy.Policy["cooldown"] == "1m" && *policy.Enabled, policy)

	count := func() int {
		status, _, err := client.Jobs().ScaleStatus(*job.ID, nil)
		must("scale status", err)
		return status.TaskGroups[group].Desired
	}
	check("count", count() == *job.TaskGroups[0].Count, count())
	scaled, _, err := client.Jobs().Scale(*job.ID, group, &most, "busy", false, map[string]any{"by": "flow"}, nil)
	must("scale", err)
	follow(client, scaled.EvalID)
	check("count", count() == most, count())
	_, _, err = client.Jobs().Scale(*job.ID, group, pointer(most+1), "busier", false, nil, nil)
	check("beyond the most", err != nil && strings.Contains(err.Error(), "400"), err)
	allocations, _, err := client.Jobs().Allocations(*job.ID, false, nil)
	must("allocations", err)
	running, _, err := client.Allocations().Info(allocations[0].ID, nil)
	must("allocation", err)
	_, err = client.Allocations().Stats(running, nil)
	must("stats", err)

	// A changed policy wakes who waits for it.
	job.TaskGroups[0].Scaling.Max = pointer(int64(most + 1))
	go func() {
		_, _, err := client.Jobs().Register(job, nil)
		must("register", err)
	}()
	options := &api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: patience}
	for *policy.Max != int64(most+1) {
		policy, meta, err = client.Scaling().GetPolicy(id, options)
		must("changed policy", err)
		options.WaitIndex = meta.LastIndex
	}

	nodes, _, err := client.Nodes().List(nil)
	must("nodes", err)
	node := nodes[0].ID
	_, _, err = client.Nodes().Info(node, nil)
	must("node", err)
	on, _, err := client.Nodes().Allocations(node, nil)
	must("allocations of the node", err)
	check("allocations of the node", len(on) > 0, len(on))
	_, err = client.Nodes().ToggleEligibility(node, false, nil)
	must("eligibility", err)
	_, err = client.Nodes().UpdateDrain(node, &api.DrainSpec{Deadline: time.Second}, false, nil)
	must("drain", err)
	wait("drained", func(options *api.QueryOptions) (bool, *api.QueryMeta, error) {
		found, meta, err := client.Nodes().Info(node, options)
		return err == nil && found.DrainStrategy == nil, meta, err
	})
	_, err = client.Nodes().UpdateDrain(node, nil, true, nil)
	must("back", err)
	_, _, err = client.Jobs().Deregister(*job.ID, true, nil)
	must("deregister", err)
	fmt.Println("complete")
}
