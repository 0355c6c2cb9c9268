package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/holdfast-run/holdfast"
)

type secretsAnswer struct {
	Secrets []holdfast.Secret `json:"secrets"`
}

// SetSecret makes a credential of the server or gives it another value.
func (c *Client) SetSecret(ctx context.Context, name holdfast.SecretName, value []byte) (holdfast.Secret, error) {
	var out struct {
		Secret holdfast.Secret `json:"secret"`
	}
	err := c.do(ctx, call{method: http.MethodPut, path: secretPath(name), body: holdfast.SetSecret{Value: value}}, &out)
	return out.Secret, err
}

// Secrets lists the credentials by name. No value is told.
func (c *Client) Secrets(ctx context.Context) ([]holdfast.Secret, error) {
	var out secretsAnswer
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/secrets"}, &out)
	return out.Secrets, err
}

// RemoveSecret removes a credential.
func (c *Client) RemoveSecret(ctx context.Context, name holdfast.SecretName) error {
	var out secretsAnswer
	return c.do(ctx, call{method: http.MethodDelete, path: secretPath(name)}, &out)
}

// RotateSecrets puts a new root key in use and wraps every credential anew under it.
func (c *Client) RotateSecrets(ctx context.Context) ([]holdfast.Secret, error) {
	var out secretsAnswer
	err := c.do(ctx, call{method: http.MethodPost, path: "/v1/secret-key/rotate"}, &out)
	return out.Secrets, err
}

func secretPath(name holdfast.SecretName) string {
	return "/v1/secrets/" + url.PathEscape(string(name))
}
