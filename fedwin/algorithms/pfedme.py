"""pFedMe: the server model descends on the clients' Moreau envelopes, whose minimizers are the personal models.

theta_i is found by a few local steps on one mini-batch, with the clients' optimizer and learning rate. It starts at the
received model and continues from its last value in later local steps, as in the authors' code
(https://github.com/CharlieDinh/pFedMe); the paper leaves that open. There clients that are not drawn also train
personal models; here a client's is that of its last participation. The code adds 0.001 theta to the gradient, which
here is --weight_decay=0.001 (of theta alone), and evaluates w_i as the personal model, overwriting theta_i.
"""

from jax import lax

from fedwin import core, local, rules, tree
from fedwin.algorithms import common, personal
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import Positive, PositiveInt


@ALGORITHMS.register(
    "pfedme",
    paper="dinh2020personalized",
    instances=("pfedme:lam=2,eta=0.4,steps=2", "pfedme:lam=0.5,eta=1,weighting=uniform"),
    degenerate={"lam": 1.0, "eta": 1.0, "steps": 1},
    **facts(client="1"),
)
def pfedme(
    setting: core.Setting,
    solve: local.Solver,
    *,
    lam: Positive = 15.0,
    eta: Positive = 0.005,
    steps: PositiveInt = 5,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """pFedMe: w <- w - eta lam (w - theta), theta after steps of g(theta) + lam (theta - w) on the same mini-batch.

        theta_i <- theta_i - lr (g(theta_i) + lam (theta_i - w)),   K times per local step, from theta_i = x
        w       <- w - eta lam (w - theta_i),                       w = x at first
        x       <- x + server_lr sum_i p_i (w_i - x)

    w - theta_i, times lam, is the gradient of the Moreau envelope min_theta f_i(theta) + lam/2 ||theta - w||^2. A local
    step computes K gradients. `fedwin train --eval_clients` evaluates the personal models theta_i; a client that has
    not taken part has the server's. Bounds on the step (`--wrap=clip`) apply to w alone.

    Args:
      lam: strength of the pull toward w; where lr lam nears 2, theta overshoots: on digits, 15 needs a rate of 0.05.
      eta: learning rate of w; the clients' learning rate is that of theta.
      steps: K, the steps of theta per local step.
      server_lr: beta in the paper.

    Source: Dinh et al., Personalized Federated Learning with Moreau Envelopes, 2020, https://arxiv.org/abs/2006.08848.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("pfedme:lam=1,eta=1,steps=1") == testing.run_rounds("fedavg")
      True
    """

    def client(params, c):
        def envelope_step(carry, y, s: local.Step, last):
            def towards_minimizer(_, carry):
                theta, stats, optimizer = carry
                g = solve.gradient_at(stats, s.batch, s.key, c.info)(theta)
                pulled = tree.axpy(lam, tree.sub(theta, s.params), g.value)
                theta, optimizer = solve.apply_step(s._replace(params=theta), pulled, None, optimizer)
                return theta, g.stats, optimizer

            carry = lax.fori_loop(0, steps, towards_minimizer, carry)
            return carry, tree.axpy(-eta * lam, tree.sub(s.params, carry[0]), s.params)

        carry = (params, c.stats, solve.optimizer.init(params))
        # Records loss and statistics at w; its gradient is not used, so XLA removes its backward pass.
        no_step = lambda grad, s: rules.RuleOutput(tree.zeros_like(s.params), None, grad(s.params))
        w = solve(params, c, no_step, carry=carry, on_step=envelope_step)
        theta, stats, _ = w.carry
        message = {"delta": common.weighted_delta(w, params, c, weighting)}
        return w.update(message, state=personal.trained(theta, stats, c.state))

    return core.algorithm(
        client,
        common.fedavg_server(server_lr),
        client_init=lambda params, id: personal.initial(setting, params),
        weighting=weighting,
        client_model=personal.read,
    )
