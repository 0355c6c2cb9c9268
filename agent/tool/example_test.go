package tool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// uptime runs a command in the box.
type uptime struct{}

func (uptime) Spec() tool.Spec {
	return tool.Spec{
		Name: "Uptime", Description: "Tells how long the machine has been up.", Schema: json.RawMessage(`{"type":"object"}`),
		// What runs a command may change something, whatever the command is.
		Effect: tool.Mutate, Where: tool.InBox,
	}
}

func (uptime) Run(ctx context.Context, call tool.Call) (tool.Result, error) {
	var out bytes.Buffer
	// The call's id makes the box run the command once, however often it is asked to.
	res, err := call.Box.Exec(ctx, sandbox.Call{ID: call.ID}, wire.ExecRequest{Argv: []string{"uptime"}}, sandbox.ExecOptions{Stdout: &out})
	if err != nil {
		return tool.Result{}, err
	}
	return tool.Result{Content: out.String(), IsError: res.Class != holdfast.ExitOK, Outcome: res.Class}, nil
}

func ExampleTool() {
	var t tool.Tool = uptime{}
	fmt.Println(t.Spec().Name)
	// Output: Uptime
}
