package httpapi

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/body"
	"github.com/holdfast-run/holdfast/internal/httpapi/spec"
)

// AgentInput is the agent's name in the path of a request. It is exported because huma ignores
// unexported embedded types.
type AgentInput struct {
	Name string `path:"name" doc:"The agent's name."`
}

func (in AgentInput) named() (holdfast.AgentName, error) {
	return holdfast.Parse[holdfast.AgentName](in.Name)
}

type agentOutput struct {
	Body struct {
		Agent holdfast.Agent `json:"agent"`
	}
}

type deployedOutput struct {
	Body struct {
		Agent holdfast.Deployed `json:"agent"`
	}
}

type updateAgentInput struct {
	AgentInput
	Body holdfast.UpdateAgent
}

type agentsInput struct {
	Cursor string `query:"cursor" doc:"The next of the page before."`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" doc:"The page size; 500 when absent."`
}

type agentsOutput struct {
	Body struct {
		Agents []holdfast.Agent `json:"agents"`
		// Next is the cursor of the next page; absent on the last page.
		Next string `json:"next,omitempty"`
	}
}

type versionsOutput struct {
	Body struct {
		Versions []holdfast.AgentVersion `json:"versions"`
	}
}

type deployInput struct {
	plain
	Name string `query:"name" required:"true" doc:"The agent's name."`
}

func (a *API) agentRoutes() {
	const tag, one = "agents", "/v1/agents/{name}"
	deploy := route(http.MethodPost, "/v1/agents", "deploy-agent", tag, "Deploy a folder as the agent's next version")
	deploy.DefaultStatus = http.StatusCreated
	deploy.MaxBodyBytes = a.cfg.Bounds.Agent
	deploy.RequestBody = &huma.RequestBody{
		Description: "A tar of the folder, which holds CLAUDE.md or AGENTS.md.",
		Required:    true, Content: map[string]*huma.MediaType{"application/x-tar": spec.Binary()},
	}
	handle(a, deploy, a.deployAgent)
	handle(a, route(http.MethodGet, "/v1/agents", "list-agents", tag, "List the agents by name"), a.listAgents)
	handleOne(a, route(http.MethodGet, one, "get-agent", tag, "Show an agent"), a.getAgent)
	handleOne(a, route(http.MethodGet, one+"/versions", "list-agent-versions", tag, "List an agent's versions"), a.agentVersions)
	handleOne(a, route(http.MethodPatch, one, "update-agent", tag, "Change an agent's description, default model and mode"), a.updateAgent)
	handleOne(a, route(http.MethodDelete, one, "delete-agent", tag, "Delete an agent"), a.deleteAgent)
}

func (a *API) deployAgent(ctx context.Context, in *deployInput) (*deployedOutput, error) {
	name, err := holdfast.Parse[holdfast.AgentName](in.Name)
	if err != nil {
		return nil, err
	}
	tar := http.MaxBytesReader(in.w, in.r.Body, a.cfg.Bounds.Agent)
	agent, err := a.cfg.Agents.Deploy(ctx, name, tar)
	if err != nil {
		// The registry only reports that it cannot read the tar. Reading once more shows whether
		// the reason was the size limit.
		_, rerr := tar.Read(make([]byte, 1))
		if refusal := body.Failure(rerr, a.cfg.Bounds.Agent); holdfast.IsKind(refusal, holdfast.KindTooLarge) {
			err = refusal
		}
		return nil, err
	}
	out := &deployedOutput{}
	out.Body.Agent = agent
	return out, nil
}

func agentOf(agent holdfast.Agent, err error) (*agentOutput, error) {
	out := &agentOutput{}
	out.Body.Agent = agent
	return out, err
}

// listAgents returns a page of the agents in order of name. The cursor is a name, so that a
// deployment between two pages neither repeats nor hides another agent.
func (a *API) listAgents(ctx context.Context, in *agentsInput) (*agentsOutput, error) {
	after, err := parseAgentCursor(in.Cursor)
	if err != nil {
		return nil, err
	}
	list, err := a.cfg.Agents.List(ctx)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(slices.Clone(list), func(one holdfast.Agent) bool { return one.Name <= after })
	limit := cmp.Or(in.Limit, 500)
	out := &agentsOutput{}
	if len(list) > limit {
		list = list[:limit]
		out.Body.Next = agentCursor(list[limit-1].Name)
	}
	out.Body.Agents = some(list)
	return out, nil
}

func agentCursor(name holdfast.AgentName) string {
	return base64.RawURLEncoding.EncodeToString([]byte("a" + name))
}

func parseAgentCursor(c string) (holdfast.AgentName, error) {
	if c == "" {
		return "", nil
	}
	if b, err := base64.RawURLEncoding.DecodeString(c); err == nil && len(b) > 1 && b[0] == 'a' {
		if name, err := holdfast.Parse[holdfast.AgentName](string(b[1:])); err == nil && agentCursor(name) == c {
			return name, nil
		}
	}
	return "", holdfast.Errorf(holdfast.KindInvalid, "agents", "%s is not a cursor of the agent list", holdfast.Quote(c)).
		WithHint("pass the value of next from the previous page")
}

func (a *API) getAgent(ctx context.Context, name holdfast.AgentName, _ *AgentInput) (*agentOutput, error) {
	return agentOf(a.cfg.Agents.Get(ctx, name))
}

func (a *API) updateAgent(ctx context.Context, name holdfast.AgentName, in *updateAgentInput) (*agentOutput, error) {
	return agentOf(a.cfg.Agents.Update(ctx, name, in.Body))
}

func (a *API) agentVersions(ctx context.Context, name holdfast.AgentName, _ *AgentInput) (out *versionsOutput, err error) {
	out = &versionsOutput{}
	out.Body.Versions, err = a.cfg.Agents.Versions(ctx, name)
	return out, err
}

func (a *API) deleteAgent(ctx context.Context, name holdfast.AgentName, _ *AgentInput) (*struct{}, error) {
	return nil, a.cfg.Agents.Delete(ctx, name)
}
