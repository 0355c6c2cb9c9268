package main

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/replay"
)

type policySimulateCmd struct {
	policyDraft
	Check bool     `help:"End with 1 if any call would be decided otherwise."`
	IDs   []string `arg:"" name:"id" help:"Sessions, or the beginnings of their ids."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*policySimulateCmd) Help() string {
	return `Evaluates every tool call that sessions have made under a draft of the server's settings, in the mode that the session had then, and shows the calls that would be decided differently. Changes nothing, asks nobody and runs no hook: a decision by a hook stays as it was.

Only the draft is used: also name the folder of the sessions' agent, if it has settings. Rules that approvals granted in a session are used; rules in files of its workspace are not.

Examples:
  holdfast policy simulate 01a1 --set 'permissions.deny=Bash(git push *)'
  holdfast policy simulate 01a1 01b2 --config holdfast.yaml --agent ./reviewer --check`
}

// simulated counts the calls of a simulation.
type simulated struct {
	Sessions int `json:"sessions"`
	Calls    int `json:"calls"`
	Differ   int `json:"differ"`
	// Skipped counts the calls that were not decided by a policy.
	Skipped int `json:"skipped"`
	// Changes counts the calls that would be decided otherwise, by the change, such as "allow -> deny".
	Changes map[string]int `json:"changes"`
}

// Run replays the logs.
func (c *policySimulateCmd) Run(e *env) error {
	if len(c.Set) == 0 && c.Config == "" && c.Agent == "" {
		return holdfast.Errorf(holdfast.KindInvalid, "policy simulate", "no draft of settings to simulate is given").WithHint("use --config FILE, --set KEY=VALUE or --agent DIR")
	}
	draft, _, err := c.engine(e)
	if err != nil {
		return err
	}
	sum := simulated{Changes: map[string]int{}}
	for _, id := range c.IDs {
		cl, full, err := e.onSession(id)
		if err != nil {
			return err
		}
		sum.Sessions++
		if err := sum.log(e, replay.New(draft), cl.AllEvents(e.ctx, full, 0)); err != nil {
			return err
		}
	}
	return verdict(!c.Check || sum.Differ == 0, sum.print(e))
}

// log replays the events of a log and prints each call that would be decided otherwise.
func (s *simulated) log(e *env, r *replay.Replay, events iter.Seq2[holdfast.Event, error]) error {
	for ev, err := range events {
		if err != nil {
			return err
		}
		call, skipped, err := r.Event(e.ctx, ev)
		if err != nil {
			return err
		}
		switch {
		case skipped:
			s.Skipped++
		case call != nil:
			s.Calls++
			if !call.Differs {
				continue
			}
			s.Differ++
			s.Changes[call.Old.Verdict+" -> "+call.New.Verdict]++
			if err := e.say(map[string]any{"call": call}, "%s #%d %s %s\n  %s\n  -> %s", call.Session, call.Seq, line(call.Tool), cut(compact(call.Input), 80), outcome(call.Old), outcome(call.New)); err != nil {
				return err
			}
		}
	}
	return nil
}

func outcome(o replay.Outcome) string {
	out := o.Verdict + " by " + o.By
	if o.Rule != "" {
		out += " " + o.Rule
	}
	if o.Answer != "" {
		out += ", " + o.Answer
		if o.AnsweredBy != "" {
			out += " by " + o.AnsweredBy
		}
	}
	if o.Reason != "" {
		out += ": " + o.Reason
	}
	return line(out)
}

func (s *simulated) print(e *env) error {
	var changes []string
	for _, c := range slices.Sorted(maps.Keys(s.Changes)) {
		changes = append(changes, fmt.Sprintf("%d %s", s.Changes[c], c))
	}
	text := fmt.Sprintf("%s in %s: %d would be decided otherwise", count(s.Calls, "call", "calls"), count(s.Sessions, "session", "sessions"), s.Differ)
	if len(changes) > 0 {
		text += " (" + strings.Join(changes, ", ") + ")"
	}
	if s.Skipped > 0 {
		text += fmt.Sprintf("; %d more decided by no policy", s.Skipped)
	}
	return e.say(map[string]any{"summary": s}, "%s", text)
}
