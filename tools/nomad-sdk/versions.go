package main

import (
	"fmt"
	"strings"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/api/contexts"
)

// refused ends the program when a step is not refused with a code.
func refused(step string, err error, code string) {
	check(step, err != nil && strings.Contains(err.Error(), code), err)
}

// versions does what people do with the history of a job and with what they look for: `nomad job tag apply` and `unset`,
// a search, the services of a job, what an agent counts, and what a node has done with.
func versions(client *api.Client) {
	job, err := client.Jobs().ParseHCL(source(), true)
	must("parse", err)
	for _, count := range []int{1, 2} {
		job.TaskGroups[0].Count = pointer(count)
		made, _, err := client.Jobs().Register(job, nil)
		must("register", err)
		follow(client, made.EvalID)
	}
	history := func() []*api.Job {
		found, _, _, err := client.Jobs().Versions(*job.ID, false, nil)
		must("versions", err)
		check("versions", len(found) == 2 && *found[0].Version == 1, len(found))
		return found
	}
	_, err = client.Jobs().TagVersion(*job.ID, 0, "golden", "why", nil)
	must("tag", err)
	tag := history()[1].VersionTag
	check("tag", tag != nil && tag.Name == "golden" && tag.Description == "why" && tag.TaggedTime > 0, tag)
	_, err = client.Jobs().TagVersion(*job.ID, 1, "golden", "", nil)
	refused("the same tag", err, "400")
	_, err = client.Jobs().UntagVersion(*job.ID, "golden", nil)
	must("untag", err)
	check("no tag", history()[1].VersionTag == nil, history()[1].VersionTag)
	_, err = client.Jobs().UntagVersion(*job.ID, "golden", nil)
	refused("no such tag", err, "404")

	for _, stable := range []bool{false, true} {
		answer, _, err := client.Jobs().Stable(*job.ID, 1, stable, nil)
		must("stable", err)
		check("index", answer.JobModifyIndex == *history()[0].JobModifyIndex, answer.JobModifyIndex)
		check("stable", *history()[0].Stable == stable, *history()[0].Stable)
	}

	found, _, err := client.Search().FuzzySearch((*job.ID)[1:], contexts.All, nil)
	must("search", err)
	jobs := found.Matches[contexts.Jobs]
	check("search", len(jobs) == 1 && jobs[0].ID == *job.ID && jobs[0].Scope[0] == "default", found.Matches)
	_, _, err = client.Search().FuzzySearch("w", contexts.Jobs, nil)
	refused("a short search", err, "400")

	wait("services", func(options *api.QueryOptions) (bool, *api.QueryMeta, error) {
		services, meta, err := client.Jobs().Services(*job.ID, options)
		return err == nil && len(services) == 2 && services[1].JobID == *job.ID, meta, err
	})
	counted, _, err := client.Operator().MetricsSummary(nil)
	must("metrics", err)
	check("metrics", len(counted.Gauges) > 0 && len(counted.Counters) > 0 && counted.Counters[0].Sum > 0, counted)

	nodes, _, err := client.Nodes().List(nil)
	must("nodes", err)
	must("collect", client.Nodes().GC(nodes[0].ID, nil))
	running, _, err := client.Jobs().Allocations(*job.ID, false, nil)
	must("allocations", err)
	check("what runs stays", len(running) == 2 && running[0].ClientStatus == "running", running)
	fmt.Println("complete")
}
