// Asks a server again and again, each time by its name and over a connection of its own, and tells what came of it.
//
//	requests URL PER_SECOND
//
// A line of JSON for each second says how many answers came and from whom, and one for each request that failed when it
// began, how long it took, and why. Requests begin on time however slow those before are.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// How long an answer may take.
const patience = 5 * time.Second

// What became of a request.
type outcome struct {
	began  time.Time
	took   time.Duration
	answer string
	err    error
}

type second struct {
	At      int64          `json:"second"`
	Answers int            `json:"answers"`
	From    map[string]int `json:"from"`
}

type failure struct {
	At    int64  `json:"failed"`
	Took  int64  `json:"took"`
	Error string `json:"error"`
}

func main() {
	if len(os.Args) != 3 {
		fail("requests URL PER_SECOND")
	}
	perSecond, err := strconv.Atoi(os.Args[2])
	if err != nil || perSecond < 1 {
		fail("PER_SECOND is no number above 0: " + os.Args[2])
	}
	outcomes := make(chan outcome, perSecond*int(patience/time.Second))
	go begin(os.Args[1], perSecond, outcomes)
	tell(outcomes)
}

func fail(why string) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(2)
}

// Begins requests on time, for ever.
func begin(url string, perSecond int, outcomes chan<- outcome) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	for range time.Tick(time.Second / time.Duration(perSecond)) {
		go func() {
			began := time.Now()
			answer, err := ask(client, url)
			outcomes <- outcome{began, time.Since(began), answer, err}
		}()
	}
}

func ask(client *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1024))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("answered %s", response.Status)
	}
	return strings.TrimSpace(string(body)), err
}

// Tells of outcomes as they come, for ever.
func tell(outcomes <-chan outcome) {
	lines := json.NewEncoder(os.Stdout)
	now := second{At: time.Now().Unix(), From: map[string]int{}}
	for one := range outcomes {
		if one.err != nil {
			write(lines, failure{one.began.UnixMilli(), one.took.Milliseconds(), one.err.Error()})
			continue
		}
		if at := time.Now().Unix(); at != now.At {
			write(lines, now)
			now = second{At: at, From: map[string]int{}}
		}
		now.Answers++
		now.From[one.answer]++
	}
}

func write(lines *json.Encoder, line any) {
	if err := lines.Encode(line); err != nil {
		fail(err.Error())
	}
}
