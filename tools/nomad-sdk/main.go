// Nomad's own library as a client of drover's gateway. NOMAD_ADDR, NOMAD_TOKEN and NOMAD_CACERT say where it is.
//
//	nomad-sdk read         each line of standard input is `TYPE PATH`: the answer is decoded strictly, faults are printed
//	nomad-sdk terraform    does with the job file of standard input what Terraform's provider does
//	nomad-sdk volumes      does with the plugin of standard input what that provider does with volumes
//	nomad-sdk autoscaler   does with it what Nomad's autoscaler does
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/hashicorp/nomad/api"
)

func client() *api.Client {
	client, err := api.NewClient(api.DefaultConfig())
	if err != nil {
		log.Fatal(err)
	}
	return client
}

func read(client *api.Client) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		kind, path, _ := strings.Cut(lines.Text(), " ")
		body, err := body(client, path)
		if err != nil {
			fmt.Printf("%s: %v\n", path, err)
			continue
		}
		for _, fault := range faults(kind, body) {
			fmt.Printf("%s: %s\n", path, fault)
		}
	}
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("usage: nomad-sdk read|terraform|volumes|autoscaler|versions")
	}
	switch os.Args[1] {
	case "read":
		read(client())
	case "terraform":
		terraform(client())
	case "volumes":
		volumes(client())
	case "autoscaler":
		autoscaler(client())
	case "versions":
		versions(client())
	default:
		log.Fatalf("%s is no command", os.Args[1])
	}
}
