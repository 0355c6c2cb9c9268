package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
)

type secretInput struct {
	Name string `path:"name" doc:"The secret's name." example:"anthropic"`
}

type setSecretInput struct {
	Name string `path:"name" doc:"The secret's name." example:"anthropic"`
	Body holdfast.SetSecret
}

type secretOutput struct {
	Body struct {
		Secret holdfast.Secret `json:"secret"`
	}
}

type secretsOutput struct {
	Body struct {
		Secrets []holdfast.Secret `json:"secrets"`
	}
}

func (a *API) secretRoutes() {
	const tag = "secrets"
	huma.Register(a.huma, route(http.MethodGet, "/v1/secrets", "list-secrets", tag, "List the server's credentials by name; no value is ever told"), a.listSecrets)
	huma.Register(a.huma, route(http.MethodPut, "/v1/secrets/{name}", "set-secret", tag, "Make a credential or give it another value"), a.setSecret)
	huma.Register(a.huma, route(http.MethodDelete, "/v1/secrets/{name}", "remove-secret", tag, "Remove a credential"), a.removeSecret)
	huma.Register(a.huma, route(http.MethodPost, "/v1/secret-key/rotate", "rotate-secrets", tag, "Replace the root key, and encrypt every credential and session environment under the new one"), a.rotateSecrets)
}

func (a *API) listSecrets(ctx context.Context, _ *struct{}) (*secretsOutput, error) {
	list, err := a.cfg.Secrets.List(ctx)
	return a.secretsOut(list, err)
}

func (a *API) secretsOut(list []holdfast.Secret, err error) (*secretsOutput, error) {
	if err != nil {
		return nil, a.fail(err)
	}
	out := &secretsOutput{}
	out.Body.Secrets = append([]holdfast.Secret{}, list...)
	return out, nil
}

func (a *API) setSecret(ctx context.Context, in *setSecretInput) (*secretOutput, error) {
	name, err := holdfast.ParseSecretName(in.Name)
	if err != nil {
		return nil, a.fail(err)
	}
	s, err := a.cfg.Secrets.Set(ctx, name, in.Body.Value)
	if err != nil {
		return nil, a.fail(err)
	}
	out := &secretOutput{}
	out.Body.Secret = s
	return out, nil
}

// removeSecret removes a secret and answers with the remaining ones.
func (a *API) removeSecret(ctx context.Context, in *secretInput) (*secretsOutput, error) {
	name, err := holdfast.ParseSecretName(in.Name)
	if err == nil {
		err = a.cfg.Secrets.Remove(ctx, name)
	}
	if err != nil {
		return nil, a.fail(err)
	}
	return a.listSecrets(ctx, nil)
}

func (a *API) rotateSecrets(ctx context.Context, _ *struct{}) (*secretsOutput, error) {
	list, err := a.cfg.Secrets.Rotate(ctx)
	return a.secretsOut(list, err)
}
