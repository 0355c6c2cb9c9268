package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/holdfast-run/holdfast"
)

func agentPath(name holdfast.AgentName, rest string) string {
	return "/v1/agents/" + url.PathEscape(string(name)) + rest
}

// DeployAgent uploads a tar archive of an agent's folder as the agent's next version. It fails
// with invalid if the settings in the folder are not valid.
func (c *Client) DeployAgent(ctx context.Context, name holdfast.AgentName, tar io.Reader) (holdfast.Deployed, error) {
	return askFor[holdfast.Deployed](ctx, c, call{
		method: http.MethodPost, path: "/v1/agents", query: url.Values{"name": {string(name)}}, body: tar, slow: true,
		head: map[string]string{"Content-Type": "application/x-tar"},
	}, "agent")
}

// Agent returns one agent; not_found if no agent has that name.
func (c *Client) Agent(ctx context.Context, name holdfast.AgentName) (holdfast.Agent, error) {
	return askFor[holdfast.Agent](ctx, c, call{method: http.MethodGet, path: agentPath(name, "")}, "agent")
}

// Agents returns all agents, sorted by name. It reads all pages of the list.
func (c *Client) Agents(ctx context.Context) ([]holdfast.Agent, error) {
	all, q := []holdfast.Agent{}, url.Values{}
	for {
		var page struct {
			Agents []holdfast.Agent `json:"agents"`
			Next   string           `json:"next"`
		}
		if err := c.do(ctx, call{method: http.MethodGet, path: "/v1/agents", query: q}, &page); err != nil {
			return nil, err
		}
		if all = append(all, page.Agents...); page.Next == "" {
			return all, nil
		}
		q.Set("cursor", page.Next)
	}
}

// AgentVersions lists an agent's versions, newest first.
func (c *Client) AgentVersions(ctx context.Context, name holdfast.AgentName) ([]holdfast.AgentVersion, error) {
	return askFor[[]holdfast.AgentVersion](ctx, c, call{method: http.MethodGet, path: agentPath(name, "/versions")}, "versions")
}

// UpdateAgent changes an agent. The change applies to sessions that are created later. It fails
// with not_found if no agent has that name.
func (c *Client) UpdateAgent(ctx context.Context, name holdfast.AgentName, req holdfast.UpdateAgent) (holdfast.Agent, error) {
	return askFor[holdfast.Agent](ctx, c, call{method: http.MethodPatch, path: agentPath(name, ""), body: req}, "agent")
}

// ExplainPolicy returns how a tool call of a session would be decided. No person is asked, and
// nothing changes.
func (c *Client) ExplainPolicy(ctx context.Context, id holdfast.SessionID, req holdfast.ExplainPolicy) (holdfast.PolicyExplanation, error) {
	return ask[holdfast.PolicyExplanation](ctx, c, call{method: http.MethodPost, path: sessionPath(id, "/policy/explain"), body: req})
}

// DeleteAgent deletes an agent; existing sessions continue with the version that they use.
func (c *Client) DeleteAgent(ctx context.Context, name holdfast.AgentName) error {
	return c.do(ctx, call{method: http.MethodDelete, path: agentPath(name, "")}, nil)
}
