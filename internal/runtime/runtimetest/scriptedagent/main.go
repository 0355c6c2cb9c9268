// Command scriptedagent is an agent that runs in a box: it speaks the Agent Client
// Protocol on its stdio, thinks with the scripted model, works with a shell, asks
// before each command, and keeps its sessions below its home.
//
// Tests of runtimes start it; it imports the scripted model and nothing of the server.
// Invariant: each prompt and tool result is on disk before the agent answers it, so that
// the agent can be killed at any point and load the session again.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
)

func main() {
	a := &agent{out: os.Stdout, model: scripted.New(), waits: map[string]chan json.RawMessage{}}
	if err := a.serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type object = map[string]any

// message is a line of the protocol that the agent has received.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
}

// agent has one session at a time, and one prompt in it.
type agent struct {
	model model.Provider
	out   *os.File

	mu     sync.Mutex
	waits  map[string]chan json.RawMessage
	asked  int
	stop   context.CancelFunc
	id     string
	said   []model.Message
	prompt sync.WaitGroup
}

func (a *agent) serve() error {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil
		}
		var m message
		if json.Unmarshal(line, &m) == nil {
			a.handle(m)
		}
	}
}

func (a *agent) handle(m message) {
	var p struct {
		SessionID string                  `json:"sessionId"`
		Prompt    []struct{ Text string } `json:"prompt"`
	}
	_ = json.Unmarshal(m.Params, &p)
	switch m.Method {
	case "":
		a.mu.Lock()
		wait := a.waits[string(m.ID)]
		delete(a.waits, string(m.ID))
		a.mu.Unlock()
		if wait != nil {
			wait <- m.Result
		}
	case "initialize":
		a.answer(m.ID, object{"protocolVersion": 1, "agentCapabilities": object{"loadSession": true}, "agentInfo": object{"name": "scripted", "version": "1"}})
	case "session/new":
		a.id, a.said = rand.Text(), nil
		a.answer(m.ID, object{"sessionId": a.id})
	case "session/load":
		raw, err := os.ReadFile(a.file(p.SessionID))
		if err == nil {
			err = json.Unmarshal(raw, &a.said)
		}
		if err != nil {
			a.refuse(m.ID, err.Error())
			return
		}
		a.id = p.SessionID
		a.replay()
		a.answer(m.ID, object{})
	case "session/cancel":
		a.mu.Lock()
		if a.stop != nil {
			a.stop()
		}
		a.mu.Unlock()
	case "session/prompt":
		var text []string
		for _, b := range p.Prompt {
			text = append(text, b.Text)
		}
		a.prompt.Wait()
		ctx, stop := context.WithCancel(context.Background())
		a.mu.Lock()
		a.stop = stop
		a.mu.Unlock()
		a.prompt.Go(func() {
			defer stop()
			a.run(ctx, m.ID, strings.Join(text, "\n"))
		})
	default:
		if m.ID != nil {
			a.refuse(m.ID, "no such method")
		}
	}
}

func (a *agent) file(id string) string {
	return filepath.Join(os.Getenv("HOME"), ".scripted", filepath.Base(id)+".json")
}

// keep writes the session's conversation to its file.
func (a *agent) keep() error {
	raw, err := json.Marshal(a.said)
	if err != nil {
		return err
	}
	name := a.file(a.id)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// replay sends the messages of a loaded session to the client again.
func (a *agent) replay() {
	for i, m := range a.said {
		for _, b := range m.Blocks {
			if b.Type == model.Text {
				kind := "agent_message_chunk"
				if m.Role == model.User {
					kind = "user_message_chunk"
				}
				a.update(object{"sessionUpdate": kind, "messageId": fmt.Sprint("m", i), "content": object{"type": "text", "text": b.Text}})
			}
		}
	}
}

// run answers a prompt.
func (a *agent) run(ctx context.Context, id json.RawMessage, text string) {
	a.said = append(a.said, model.Message{Role: model.User, Blocks: []model.Block{{Type: model.Text, Text: text}}})
	for {
		if err := a.keep(); err != nil {
			a.refuse(id, err.Error())
			return
		}
		blocks, err := a.think(ctx)
		if err != nil && ctx.Err() == nil {
			a.refuse(id, err.Error())
			return
		}
		if len(blocks) > 0 {
			a.said = append(a.said, model.Message{Role: model.Assistant, Blocks: blocks})
		}
		var results []model.Block
		for _, b := range blocks {
			if b.Type == model.ToolUse {
				results = append(results, a.use(ctx, b))
			}
		}
		if len(results) > 0 {
			a.said = append(a.said, model.Message{Role: model.User, Blocks: results})
		}
		if len(results) == 0 || ctx.Err() != nil {
			break
		}
	}
	if err := a.keep(); err != nil {
		a.refuse(id, err.Error())
		return
	}
	reason := "end_turn"
	if ctx.Err() != nil {
		reason = "cancelled"
	}
	a.answer(id, object{"stopReason": reason})
}

// think calls the scripted model with the conversation so far.
func (a *agent) think(ctx context.Context) (blocks []model.Block, err error) {
	step := fmt.Sprint("a", len(a.said))
	req := model.Request{
		Session: holdfast.SessionID(a.id), Messages: slices.Clone(a.said),
		Tools: []model.Tool{{Name: "Bash", Schema: json.RawMessage(`{"type":"object"}`)}},
	}
	for c, err := range a.model.Stream(ctx, req) {
		if err != nil {
			return blocks, err
		}
		switch c.Type {
		case model.ChunkText:
			a.update(object{"sessionUpdate": "agent_message_chunk", "messageId": step, "content": object{"type": "text", "text": c.Delta}})
		case model.ChunkThinking:
			a.update(object{"sessionUpdate": "agent_thought_chunk", "messageId": step, "content": object{"type": "text", "text": c.Delta}})
		case model.ChunkBlock:
			blocks = append(blocks, c.Block)
		}
	}
	return blocks, nil
}

// use carries out a tool use, if the client permits it.
func (a *agent) use(ctx context.Context, b model.Block) model.Block {
	var in struct{ Command string }
	_ = json.Unmarshal(b.Input, &in)
	call := object{"toolCallId": b.ID, "title": "bash", "kind": "execute", "status": "pending", "rawInput": b.Input}
	a.update(with(call, object{"sessionUpdate": "tool_call"}))
	out, failed := "denied", true
	if a.may(ctx, call) {
		out, failed = shell(ctx, in.Command)
	}
	status := "completed"
	if failed {
		status = "failed"
	}
	a.update(object{"sessionUpdate": "tool_call_update", "toolCallId": b.ID, "status": status, "rawOutput": out})
	return model.Block{Type: model.ToolResult, ID: b.ID, Text: out, IsError: failed}
}

// shell runs a command until it ends, or until ctx ends: that kills the command with its process group.
func shell(ctx context.Context, command string) (out string, failed bool) {
	cmd := exec.CommandContext(ctx, "/bin/bash", "-c", command)
	cmd.Dir = "/workspace"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	err := cmd.Run()
	if err != nil {
		fmt.Fprintln(&both, err)
	}
	return both.String(), err != nil
}

// may asks the client for permission for a call, and reports whether it was given.
func (a *agent) may(ctx context.Context, call object) bool {
	a.mu.Lock()
	a.asked++
	id := fmt.Sprintf(`"ask-%d-%d"`, os.Getpid(), a.asked)
	wait := make(chan json.RawMessage, 1)
	a.waits[id] = wait
	a.mu.Unlock()
	a.say(object{"id": json.RawMessage(id), "method": "session/request_permission", "params": object{
		"sessionId": a.id, "toolCall": call,
		"options": []object{{"optionId": "yes", "name": "Allow", "kind": "allow_once"}, {"optionId": "no", "name": "Deny", "kind": "reject_once"}},
	}})
	select {
	case raw := <-wait:
		var r struct {
			Outcome struct{ OptionID string } `json:"outcome"`
		}
		return json.Unmarshal(raw, &r) == nil && r.Outcome.OptionID == "yes"
	case <-ctx.Done():
		return false
	}
}

func with(a, b object) object {
	out := object{}
	for _, m := range []object{a, b} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

func (a *agent) update(u object) {
	a.say(object{"method": "session/update", "params": object{"sessionId": a.id, "update": u}})
}

func (a *agent) answer(id json.RawMessage, result object) { a.say(object{"id": id, "result": result}) }

func (a *agent) refuse(id json.RawMessage, why string) {
	a.say(object{"id": id, "error": object{"code": -32603, "message": why}})
}

// say writes one whole line of the protocol to the client.
func (a *agent) say(m object) {
	line, err := json.Marshal(with(m, object{"jsonrpc": "2.0"}))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, _ = a.out.Write(append(line, '\n'))
}
