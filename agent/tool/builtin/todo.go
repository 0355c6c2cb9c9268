package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
)

const (
	maxTodos    = 200
	maxTodoText = 2000
)

var todoSpec = tool.Spec{
	Name: "TodoWrite",
	Description: "Writes the list of what is to be done for a task of several steps, each time the whole list. " +
		"Keep one entry in_progress and mark each completed as soon as it is.",
	Schema: schema(`{"type":"object","properties":{"todos":{"type":"array","items":{"type":"object","properties":{` +
		`"content":{"type":"string","description":"What is to be done"},` +
		`"status":{"type":"string","enum":["pending","in_progress","completed"]},` +
		`"activeForm":{"type":"string","description":"The same as it is being done"}` +
		`},"required":["content","status"],"additionalProperties":false}}},"required":["todos"],"additionalProperties":false}`),
	Effect: tool.Read, Where: tool.InServer,
}

var todoMarks = map[string]string{"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}

func runTodo(_ context.Context, call tool.Call) (tool.Result, error) {
	in := newInput(call.Input)
	todos := in.list("todos", true)
	if len(todos) > maxTodos {
		in.fail("the input field %q has %d entries, more than %d", "todos", len(todos), maxTodos)
	}
	if err := in.done(); err != nil {
		return tool.Result{}, err
	}
	counts := map[string]int{}
	var b strings.Builder
	for i, raw := range todos {
		content, status, err := todo(raw)
		if err != nil {
			return tool.Result{}, bad("todos[%d]: %s", i, reason(err))
		}
		counts[status]++
		fmt.Fprintf(&b, "\n%s %s", todoMarks[status], content)
	}
	return ok(fmt.Sprintf("The list has %d completed, %d in progress, %d pending.%s",
		counts["completed"], counts["in_progress"], counts["pending"], b.String())), nil
}

func todo(raw json.RawMessage) (content, status string, err error) {
	in := newInput(raw)
	content, status = in.filled("content"), in.filled("status")
	in.text("activeForm", false)
	if _, known := todoMarks[status]; !known {
		in.fail("the input field %q must be one of pending, in_progress, completed, not %s", "status", holdfast.Quote(status))
	}
	if len(content) > maxTodoText {
		in.fail("the input field %q has %d bytes, more than %d", "content", len(content), maxTodoText)
	}
	return content, status, in.done()
}
