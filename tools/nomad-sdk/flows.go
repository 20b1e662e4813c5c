package main

import "github.com/hashicorp/nomad/api"

func autoscaler(client *api.Client, job, group string) {}

func terraform(client *api.Client, file string) {}
