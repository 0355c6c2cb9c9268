package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-run/holdfast"
)

// SecretInput is the secret's name in the path of a request. It is exported because huma ignores
// unexported embedded types.
type SecretInput struct {
	Name string `path:"name" doc:"The secret's name." example:"anthropic"`
}

func (in SecretInput) named() (holdfast.SecretName, error) {
	return holdfast.Parse[holdfast.SecretName](in.Name)
}

type setSecretInput struct {
	SecretInput
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
	handle(a, route(http.MethodGet, "/v1/secrets", "list-secrets", tag, "List the server's credentials by name; no value is ever told"), a.listSecrets)
	handleOne(a, route(http.MethodPut, "/v1/secrets/{name}", "set-secret", tag, "Make a credential or give it another value"), a.setSecret)
	handleOne(a, route(http.MethodDelete, "/v1/secrets/{name}", "remove-secret", tag, "Remove a credential"), a.removeSecret)
	handle(a, route(http.MethodPost, "/v1/secret-key/rotate", "rotate-secrets", tag, "Replace the root key, and encrypt every credential and session environment under the new one"), a.rotateSecrets)
}

func (a *API) listSecrets(ctx context.Context, _ *struct{}) (*secretsOutput, error) {
	return secretsOf(a.cfg.Secrets.List(ctx))
}

func secretsOf(list []holdfast.Secret, err error) (*secretsOutput, error) {
	out := &secretsOutput{}
	out.Body.Secrets = some(list)
	return out, err
}

func (a *API) setSecret(ctx context.Context, name holdfast.SecretName, in *setSecretInput) (out *secretOutput, err error) {
	out = &secretOutput{}
	out.Body.Secret, err = a.cfg.Secrets.Set(ctx, name, in.Body.Value)
	return out, err
}

// removeSecret removes a secret and answers with the remaining ones.
func (a *API) removeSecret(ctx context.Context, name holdfast.SecretName, _ *SecretInput) (*secretsOutput, error) {
	if err := a.cfg.Secrets.Remove(ctx, name); err != nil {
		return nil, err
	}
	return a.listSecrets(ctx, nil)
}

func (a *API) rotateSecrets(ctx context.Context, _ *struct{}) (*secretsOutput, error) {
	return secretsOf(a.cfg.Secrets.Rotate(ctx))
}
