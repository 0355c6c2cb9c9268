package main

import (
	"reflect"

	"github.com/holdfast-run/holdfast"
)

// filled is the value of a flag that refuses an empty value. Otherwise an empty value would count as a flag that was
// not given, and "--dir $UNSET" would make a session with other files.
type filled string

// UnmarshalText is called by kong for a flag that was given.
func (f *filled) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "", "the flag's value is empty")
	}
	*f = filled(text)
	return nil
}

// newSession holds the flags that describe a session to create: those of session create
// and of chat.
type newSession struct {
	Dir       filled            `placeholder:"DIR" xor:"files,import" help:"Work in this directory of your own, on the server's machine."`
	Workspace filled            `placeholder:"SLUG" xor:"files,import" help:"Work on the files of this workspace."`
	Mount     string            `placeholder:"SCOPE" help:"What its box has of the server's files, within its workspace's: workspace, or tree-ro for tree_root at /tree too, read-only."`
	Agent     string            `placeholder:"NAME" help:"A deployed agent; the built-in default otherwise."`
	Trust     string            `placeholder:"TRUST" help:"untrusted: tools run in a box. trusted: on the host."`
	Runtime   string            `placeholder:"NAME" help:"How the agent runs: native, claude or acp:NAME, as acp:opencode."`
	Model     string            `placeholder:"NAME" help:"The model."`
	Mode      string            `placeholder:"MODE" help:"Permission mode: ${modes}."`
	Env       map[string]string `placeholder:"K=V" mapsep:"none" help:"Environment of its tools; repeatable."`
	OwnID     string            `name:"id" placeholder:"UUID" help:"Your own id."`
	Title     string            `placeholder:"TEXT" help:"The title."`
	Tag       []string          `placeholder:"TAG" sep:"none" help:"A tag; repeatable."`

	Budget     *string `placeholder:"BOUNDS" help:"What the session may use up, as turns=10,tokens=100000,usd=2.5,seconds=3600, or none."`
	TurnBudget *string `placeholder:"BOUNDS" help:"The budget of each turn, with the same keys; turns counts the model calls."`

	AllowNet []string `placeholder:"DOMAIN" sep:"none" help:"A domain that its box may connect to, as pypi.org, *.npmjs.org or example.com:8443; repeatable. The server's network.allow bounds it."`
	NoNet    bool     `help:"The box may connect to nothing, whatever the agent and the server allow."`

	importFlags

	Key string `name:"idempotency-key" placeholder:"KEY" help:"Makes a repeated command answer with the same session."`
}

// request returns the request to create the session that the flags describe.
func (n *newSession) request() (holdfast.CreateSession, error) {
	budget, turnBudget, err := budgets(n.Budget, n.TurnBudget)
	if err != nil {
		return holdfast.CreateSession{}, err
	}
	if n.Workspace != "" {
		if _, err := holdfast.Parse[holdfast.Slug](string(n.Workspace)); err != nil {
			return holdfast.CreateSession{}, err
		}
	}
	dir, err := ownDir(string(n.Dir))
	return holdfast.CreateSession{
		ID: n.OwnID, Dir: dir, Umask: umaskFor(dir), Workspace: string(n.Workspace), Mount: n.Mount, Agent: n.Agent, Trust: n.Trust, Runtime: n.Runtime, Model: n.Model, Mode: n.Mode,
		Title: n.Title, Tags: n.Tag, Env: n.Env, Budget: budget, TurnBudget: turnBudget, Network: destinations(n.AllowNet, n.NoNet),
	}, err
}

// given reports whether any of the flags was given.
func (n *newSession) given() bool { return !reflect.DeepEqual(*n, newSession{}) }

// destinations returns the network destinations of a session: those of --allow-net; an empty list for
// --no-net alone; nil if neither flag is given.
func destinations(allow []string, none bool) []string {
	if none && len(allow) == 0 {
		return []string{}
	}
	return allow
}
