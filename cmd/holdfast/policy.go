package main

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/policy"
)

type policyCmd struct {
	Explain  policyExplainCmd  `cmd:"" help:"Say how a tool call would be decided, and by what."`
	Simulate policySimulateCmd `cmd:"" help:"Evaluate past tool calls under a draft of the settings, and show which decisions would change."`
}

type policyExplainCmd struct {
	policyDraft
	Session string `placeholder:"ID" help:"Ask the server about a session, as it stands, instead of a draft."`
	Mode    string `placeholder:"MODE" help:"Permission mode: ${modes}; by default the agent's, else that of the trust."`
	Trust   string `placeholder:"TRUST" help:"untrusted (by default): in a box. trusted: on the host."`
	Tool    string `arg:"" help:"The tool: Bash, Read, Write, WebFetch or another one."`
	Input   string `arg:"" help:"Its input as JSON, or for the common tools the command, file or address alone; put -- before it."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*policyExplainCmd) Help() string {
	return `Without --session it needs no server: it reads the settings that a server would start with. Shows every stage that was asked, in order; the last one decided. Nobody is asked and no hook runs. Ends with 0 if the call is allowed, 1 if it is denied or a person would be asked.

Examples:
  holdfast policy explain --mode default Bash -- 'git push'
  holdfast policy explain --set 'permissions.deny=Read(~/.ssh/**)' Read -- '~/.ssh/id_rsa'
  holdfast policy explain --agent ./reviewer Write -- notes.txt
  holdfast policy explain --session 01a1 Bash -- 'git push'`
}

// Run explains how the policy decides a tool call.
func (c *policyExplainCmd) Run(e *env) error {
	input, err := toolInput(c.Tool, c.Input)
	if err != nil {
		return err
	}
	var got holdfast.PolicyExplanation
	if c.Session != "" {
		got, err = c.server(e, input)
	} else {
		got, err = c.draft(e, input)
	}
	if err != nil {
		return err
	}
	var trace policy.Trace
	for _, s := range got.Trace {
		trace = append(trace, policy.Step{Stage: line(s.Stage), Verdict: line(s.Verdict), Rule: line(s.Rule), Reason: line(s.Reason), Rewrites: s.Rewrites})
	}
	return verdict(got.Verdict == policy.Allowed.String(), e.say(got, "%s%s by %s", trace, line(got.Verdict), line(got.By)))
}

// server asks the server how the policy of one of its sessions decides the call.
func (c *policyExplainCmd) server(e *env, input json.RawMessage) (holdfast.PolicyExplanation, error) {
	if c.Mode != "" || c.Trust != "" || c.Config != "" || c.Agent != "" || len(c.Set) > 0 {
		return holdfast.PolicyExplanation{}, holdfast.Errorf(holdfast.KindInvalid, "policy explain", "--session takes mode, trust and settings from the server, not from flags").
			WithHint("leave out --mode, --trust, --config, --set and --agent")
	}
	cl, id, err := e.onSession(c.Session)
	if err != nil {
		return holdfast.PolicyExplanation{}, err
	}
	return cl.ExplainPolicy(e.ctx, id, holdfast.ExplainPolicy{Tool: c.Tool, Input: input})
}

// draft decides the call by a policy that the command itself makes from the settings, without asking a server.
func (c *policyExplainCmd) draft(e *env, input json.RawMessage) (none holdfast.PolicyExplanation, err error) {
	engine, agent, err := c.engine(e)
	if err != nil {
		return none, err
	}
	trust, err := holdfast.Parse[holdfast.Trust](cmp.Or(c.Trust, string(holdfast.Untrusted)))
	if err != nil {
		return none, err
	}
	mode, err := holdfast.Parse[holdfast.Mode](cmp.Or(c.Mode, string(agent.Mode), string(trust.DefaultMode())))
	if err != nil {
		return none, err
	}
	d, trace, err := engine.Rehearse(e.ctx, policy.Request{
		Session: "SESSION", Mode: mode, Tool: c.Tool, ReadOnly: engine.Reads(c.Tool), Input: input, Sandboxed: trust == holdfast.Untrusted,
	})
	return trace.Explains(d, mode), err
}

// plainField returns the field of a tool's input that gets an argument which is not JSON, such as command
// of the tool Bash; false if the tool has no such field.
func plainField(name string) (string, bool) {
	for _, t := range slices.Concat(policy.StandardTools(), app.Tools()) {
		if t.Name == name {
			return t.Field, t.Field != ""
		}
	}
	return "", false
}

func toolInput(tool, s string) (json.RawMessage, error) {
	if strings.HasPrefix(strings.TrimSpace(s), "{") {
		if !json.Valid([]byte(s)) {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "policy", "the tool input %s is not valid JSON", holdfast.Quote(s))
		}
		return json.RawMessage(s), nil
	}
	field, ok := plainField(tool)
	if !ok {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "policy", "the input of the tool %s has to be a JSON object", holdfast.Quote(tool)).
			WithHint(`write the input as '{"field": "value"}'`)
	}
	return json.Marshal(map[string]string{field: s})
}
