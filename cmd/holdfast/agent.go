package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/agents"
)

type agentCmd struct {
	Deploy agentDeployCmd `cmd:"" help:"Deploy a folder as the agent's next version."`
	List   agentListCmd   `cmd:"" aliases:"ls" help:"List the agents."`
	Show   agentShowCmd   `cmd:"" help:"Show an agent and its versions."`
	Update agentUpdateCmd `cmd:"" help:"Set an agent's description, default model or mode."`
	Delete agentDeleteCmd `cmd:"" aliases:"rm" help:"Delete an agent; sessions keep the version they have."`
}

type agentDeployCmd struct {
	Dir  string `arg:"" help:"The folder; it holds CLAUDE.md or AGENTS.md."`
	Name string `required:"" short:"n" placeholder:"NAME" help:"The agent's name."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*agentDeployCmd) Help() string {
	return "Example:\n  holdfast agent deploy ./reviewer --name reviewer"
}

// Run packs the folder and uploads it.
func (a *agentDeployCmd) Run(e *env) (err error) {
	c, name, err := agentArg{a.Name}.on(e)
	if err != nil {
		return err
	}
	tar := agents.PackDir(e.ctx, a.Dir)
	defer func() { err = errors.Join(err, tar.Close()) }()
	packed := &packing{r: tar}
	from, done := e.progress(packed, "sent")
	agent, err := c.DeployAgent(e.ctx, name, from)
	done()
	if packed.err != nil {
		// The error of packing is the reason why the upload broke off.
		return hinted(packed.err, holdfast.KindNotFound, "name a folder of this machine")
	}
	if err != nil {
		return err
	}
	for _, n := range agent.Notices {
		e.note("%s", line(n))
	}
	what := ""
	if agent.Unchanged {
		what = ", unchanged"
	}
	return e.say(map[string]any{"agent": agent}, "%s version %d (%s)%s", agent.Name, agent.Version, short(string(agent.VersionID)), what)
}

// packing stores the error of packing the folder: the upload itself only reports that it broke off.
type packing struct {
	r   interface{ Read([]byte) (int, error) }
	err error
}

func (p *packing) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	var e *holdfast.Error
	if errors.As(err, &e) {
		p.err = e
	}
	return n, err
}

type agentListCmd struct{}

// Run lists the agents.
func (*agentListCmd) Run(e *env) error {
	list, err := ask(e, (*client.Client).Agents)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, a := range list {
		rows = append(rows, []string{string(a.Name), strconv.FormatInt(a.Version, 10), cmp.Or(a.Runtime, "-"), short(string(a.VersionID)), when(a.UpdatedAt)})
	}
	return e.listing(map[string]any{"agents": list}, []string{"NAME", "VERSION", "RUNTIME", "CONTENT", "UPDATED"}, rows)
}

// agentArg is the argument of the commands for one agent.
type agentArg struct {
	Name string `arg:"" help:"The agent's name."`
}

// on returns the client of the server, and the parsed name of the agent.
func (a agentArg) on(e *env) (*client.Client, holdfast.AgentName, error) {
	name, err := holdfast.Parse[holdfast.AgentName](a.Name)
	if err != nil {
		return nil, "", err
	}
	c, err := e.client()
	return c, name, err
}

type agentShowCmd struct{ agentArg }

// Run shows an agent's versions and the files of the newest.
func (a *agentShowCmd) Run(e *env) error {
	c, name, err := a.on(e)
	if err != nil {
		return err
	}
	agent, err := c.Agent(e.ctx, name)
	if err != nil {
		return err
	}
	versions, err := c.AgentVersions(e.ctx, name)
	if err != nil {
		return err
	}
	if e.json {
		return e.print(map[string]any{"agent": agent, "versions": versions})
	}
	fmt.Fprint(e.stdout, line(string(agent.Name)))
	for _, p := range [][2]string{{"runtime", agent.Runtime}, {"model", agent.Model}, {"mode", string(agent.Mode)}} {
		if p[1] != "" {
			fmt.Fprintf(e.stdout, ", %s %s", p[0], line(p[1]))
		}
	}
	if agent.Description != "" {
		fmt.Fprintf(e.stdout, "\n%s", line(agent.Description))
	}
	fmt.Fprint(e.stdout, "\n\n")
	var rows [][]string
	var newest holdfast.AgentVersion
	for _, v := range versions {
		rows = append(rows, []string{strconv.FormatInt(v.Number, 10), string(v.ID), count(len(v.Files), "file", "files"), when(v.CreatedAt)})
		if v.Number > newest.Number {
			newest = v
		}
	}
	if err := e.table([]string{"VERSION", "CONTENT", "FILES", "DEPLOYED"}, rows); err != nil {
		return err
	}
	fmt.Fprintln(e.stdout)
	rows = nil
	for _, f := range newest.Files {
		rows = append(rows, []string{fmt.Sprintf("%04o", f.Mode), strconv.FormatInt(f.Size, 10), f.Path})
	}
	return e.table([]string{"MODE", "SIZE", "FILE"}, rows)
}

type agentUpdateCmd struct {
	agentArg
	Description *string `placeholder:"TEXT" help:"What the agent is for."`
	Model       *string `placeholder:"MODEL" help:"Model of sessions that name none."`
	Mode        *string `placeholder:"MODE" help:"Permission mode of sessions that name none: ${modes}."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*agentUpdateCmd) Help() string {
	return `What is set here wins over the agent's holdfast.yaml, for sessions that are created from now on, and stays when another version is deployed. An empty value goes back to what the version says.

Example:
  holdfast agent update reviewer --mode plan`
}

// Run changes the agent.
func (a *agentUpdateCmd) Run(e *env) error {
	name, err := holdfast.Parse[holdfast.AgentName](a.Name)
	if err != nil {
		return err
	}
	if a.Description == nil && a.Model == nil && a.Mode == nil {
		return holdfast.Errorf(holdfast.KindInvalid, "agent", "no change to the agent is given").WithHint("give the change with --description, --model or --mode")
	}
	c, err := e.client()
	if err != nil {
		return err
	}
	agent, err := c.UpdateAgent(e.ctx, name, holdfast.UpdateAgent{Description: a.Description, Model: a.Model, Mode: a.Mode})
	if err != nil {
		return err
	}
	return e.say(map[string]any{"agent": agent}, "updated %s", name)
}

type agentDeleteCmd struct{ agentArg }

// Run deletes an agent.
func (a *agentDeleteCmd) Run(e *env) error {
	c, name, err := a.on(e)
	if err != nil {
		return err
	}
	if err := c.DeleteAgent(e.ctx, name); err != nil {
		return err
	}
	return e.say(map[string]any{"deleted": name}, "deleted %s", name)
}
