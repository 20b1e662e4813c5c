// Asks Nomad's own parser of job files (package jobspec2, MPL 2.0, of the last version under that licence) for the
// values of expressions. Input: the list of ../expressions.json; output: the same list with what the parser says.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/hashicorp/nomad/jobspec2"
)

func main() {
	var cases [][2]any
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("[")
	for at, pair := range cases {
		line, err := json.Marshal([2]any{pair[0], value(pair[0].(string))})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		comma := ","
		if at == len(cases)-1 {
			comma = ""
		}
		fmt.Printf("  %s%s\n", line, comma)
	}
	fmt.Println("]")
}

// The value of an expression, or nil where the parser refuses it.
func value(expression string) any {
	body := fmt.Sprintf("job \"j\" {\n group \"g\" {\n  task \"t\" {\n   driver = \"exec\"\n   config {\n    x = %s\n   }\n  }\n }\n}\n", expression)
	job, err := jobspec2.ParseWithConfig(&jobspec2.ParseConfig{Path: "j.hcl", Body: []byte(body), Strict: true})
	if err != nil {
		return nil
	}
	found := job.TaskGroups[0].Tasks[0].Config["x"]
	if _, err := json.Marshal(found); err != nil {
		return nil
	}
	return found
}
