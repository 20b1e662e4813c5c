// Reads alerting rules as Prometheus does, and says which of them fire on what was scraped.
//
//	alerts RULES [SCRAPE[,SCRAPE...]=DURATION ...]
//
// Each argument after the rules is a time during which every scrape gives what these files hold, OpenMetrics text as a target answers
// it. At the end of each such time one line of JSON lists the alerts that fire. Prometheus' own packages check the rules, read the
// scrapes and evaluate the expressions; this program repeats the scrapes and waits for each rule's `for`.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// How often targets are scraped and rules evaluated.
const interval = 30 * time.Second

type sample struct {
	labels labels.Labels
	value  float64
}

// What was scraped so far, by the labels' text.
type series map[string]*promql.Series

type alert struct {
	Alert  string            `json:"alert"`
	Labels map[string]string `json:"labels"`
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("usage: alerts RULES [SCRAPE[,SCRAPE...]=DURATION ...]")
	}
	quiet := slog.New(slog.DiscardHandler)
	grammar := parser.NewParser(parser.Options{})
	groups, errs := rulefmt.ParseFile(args[0], false, model.UTF8Validation, grammar, quiet)
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	engine := promql.NewEngine(promql.EngineOpts{
		Logger: quiet, Parser: grammar, MaxSamples: 1_000_000, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
	})
	known, since, now := series{}, map[string]time.Time{}, time.Unix(0, 0)
	for _, arg := range args[1:] {
		files, length, _ := strings.Cut(arg, "=")
		duration, err := time.ParseDuration(length)
		if err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
		samples, err := scrape(strings.Split(files, ","))
		if err != nil {
			return err
		}
		firing := []alert{}
		for end := now.Add(duration); now.Before(end); now = now.Add(interval) {
			known.add(samples, now)
			if firing, err = evaluate(engine, known, groups, since, now); err != nil {
				return err
			}
		}
		if err := json.NewEncoder(out).Encode(firing); err != nil {
			return err
		}
	}
	return nil
}

// What targets answer; each is known by the name of its file.
func scrape(files []string) ([]sample, error) {
	var all []sample
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		instance := filepath.Base(file)
		all = append(all, sample{labels.FromStrings(labels.MetricName, "up", "instance", instance), 1})
		entries, err := textparse.New(text, "application/openmetrics-text", nil, textparse.ParserOptions{})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for {
			entry, err := entries.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if entry != textparse.EntrySeries {
				continue
			}
			var own labels.Labels
			entries.Labels(&own)
			_, _, value := entries.Series()
			all = append(all, sample{labels.NewBuilder(own).Set("instance", instance).Labels(), value})
		}
	}
	return all, nil
}

func (known series) add(samples []sample, now time.Time) {
	for _, sample := range samples {
		key := sample.labels.String()
		if known[key] == nil {
			known[key] = &promql.Series{Metric: sample.labels}
		}
		known[key].Floats = append(known[key].Floats, promql.FPoint{T: now.UnixMilli(), F: sample.value})
	}
}

// The alerts that fire now. `since` holds when each expression began to be true, and is brought up to date.
func evaluate(engine *promql.Engine, known series, groups *rulefmt.RuleGroups, since map[string]time.Time, now time.Time) ([]alert, error) {
	firing, active := []alert{}, map[string]bool{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			query, err := engine.NewInstantQuery(context.Background(), known, nil, rule.Expr, now)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", rule.Alert, err)
			}
			found, err := query.Exec(context.Background()).Vector()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", rule.Alert, err)
			}
			for _, one := range found {
				key := rule.Alert + one.Metric.String()
				active[key] = true
				if _, ok := since[key]; !ok {
					since[key] = now
				}
				if now.Sub(since[key]) >= time.Duration(rule.For) {
					firing = append(firing, alert{rule.Alert, one.Metric.Map()})
				}
			}
			query.Close()
		}
	}
	for key := range since {
		if !active[key] {
			delete(since, key)
		}
	}
	slices.SortFunc(firing, func(one, other alert) int {
		return strings.Compare(one.Alert+fmt.Sprint(one.Labels), other.Alert+fmt.Sprint(other.Labels))
	})
	return firing, nil
}

// Querier makes what was scraped a storage.Queryable.
func (known series) Querier(_, _ int64) (storage.Querier, error) {
	choose := func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &seriesSet{at: -1}
		for _, one := range known {
			if matches(one.Metric, matchers) {
				found.all = append(found.all, promql.NewStorageSeries(*one))
			}
		}
		return found
	}
	return &storage.MockQuerier{SelectMockFunction: choose}, nil
}

// Series that were found, one after the other.
type seriesSet struct {
	all []storage.Series
	at  int
}

func (set *seriesSet) Next() bool {
	set.at++
	return set.at < len(set.all)
}

func (set *seriesSet) At() storage.Series                { return set.all[set.at] }
func (set *seriesSet) Err() error                        { return nil }
func (set *seriesSet) Warnings() annotations.Annotations { return nil }

func matches(of labels.Labels, matchers []*labels.Matcher) bool {
	for _, matcher := range matchers {
		if !matcher.Matches(of.Get(matcher.Name)) {
			return false
		}
	}
	return true
}
