package hook_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/policy"
)

func ExampleRegistry() {
	var hooks hook.Registry
	_, err := hooks.Register(hook.Definition{
		Event: hook.PreToolUse, Matcher: "Bash", Name: "no-force",
		Func: func(_ context.Context, in hook.Input) (*hook.Output, error) {
			if bytes.Contains(in.ToolInput, []byte("--force")) {
				return &hook.Output{Verdict: policy.Denied, Reason: "nothing is forced here"}, nil
			}
			return nil, nil
		},
	})
	if err != nil {
		fmt.Println(err)
	}
	res := hooks.Run(context.Background(), hook.Input{
		Event: hook.PreToolUse, ToolName: "Bash", ToolInput: []byte(`{"command":"git push --force"}`),
	}, hook.Places{})
	fmt.Println(res.Blocked(), res.By, res.Reason)
	// Output: true no-force nothing is forced here
}
