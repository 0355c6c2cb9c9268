// Package outside stands for a program of a user of Holdfast's packages, with its own tools,
// policy and hook.
package outside

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// CountLines is a tool that counts the lines of a file with a command in the box.
type CountLines struct{}

// Spec implements tool.Tool.
func (CountLines) Spec() tool.Spec {
	return tool.Spec{
		Name: "CountLines", Description: "Counts the lines of a file.",
		Schema: json.RawMessage(`{"type":"object","properties":{"file":{"type":"string"}},"required":["file"]}`),
		Effect: tool.Mutate, Where: tool.InBox, // a command might change anything
	}
}

// Run implements tool.Tool.
func (CountLines) Run(ctx context.Context, call tool.Call) (tool.Result, error) {
	var in struct{ File string }
	if err := json.Unmarshal(call.Input, &in); err != nil {
		return tool.Result{Content: err.Error(), IsError: true}, nil
	}
	var out bytes.Buffer
	res, err := call.Box.Exec(ctx, sandbox.Call{ID: call.ID}, wire.ExecRequest{Shell: `wc -l <"$FILE"`, Env: []string{"FILE=" + in.File}},
		sandbox.ExecOptions{Stdout: &out, Stderr: &out})
	if err != nil {
		return tool.Result{}, err
	}
	return tool.Result{Content: strings.TrimSpace(out.String()), IsError: res.Class != holdfast.ExitOK, Outcome: res.Class}, nil
}

// Post is a tool that changes something outside of the box.
type Post struct{ Posted *[]string }

// Spec implements tool.Tool.
func (Post) Spec() tool.Spec {
	return tool.Spec{
		Name: "Post", Description: "Posts a text.", Schema: json.RawMessage(`{"type":"object"}`),
		Effect: tool.Mutate, Where: tool.InServer,
	}
}

// Run implements tool.Tool.
func (p Post) Run(_ context.Context, call tool.Call) (tool.Result, error) {
	*p.Posted = append(*p.Posted, string(call.Input))
	return tool.Result{Content: "posted"}, nil
}

// Policy allows CountLines for text files, and whatever the permission mode allows.
func Policy() (*policy.Engine, error) {
	return policy.New(policy.Config{
		Tools: []policy.Tool{
			{Name: "CountLines", Class: policy.ClassRuns, Subject: policy.SubjectPath, Field: "file"},
			{Name: "Post", Class: policy.ClassRuns},
		},
		Callback: policy.Func(func(_ context.Context, req policy.Request) (policy.Decision, error) {
			if req.Tool == "CountLines" && !bytes.Contains(req.Input, []byte(".txt")) {
				return policy.Deny("only text files have lines"), nil
			}
			return policy.Decision{}, nil
		}),
	})
}

// Hook registers a hook that refuses to post secrets and tells the model so.
func Hook(r *hook.Registry) error {
	_, err := r.Register(hook.Definition{
		Event: hook.PreToolUse, Matcher: "Post", Name: "no-secrets",
		Func: func(_ context.Context, in hook.Input) (*hook.Output, error) {
			if bytes.Contains(in.ToolInput, []byte("secret")) {
				return &hook.Output{Verdict: policy.Denied, Reason: "it is a secret"}, nil
			}
			return nil, nil
		},
	})
	return err
}
