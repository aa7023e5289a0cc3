"""The algorithms by name: `ALGORITHMS.build("fedprox:mu=0.1", setting, train)`.

A builder has the signature `builder(setting: core.Setting, train: local.Solver, *, hyper=default, ...) ->
core.Algorithm`. To add an algorithm, write one file, add one entry here and the BibTeX of its paper in fedwin.citations;
tests take everything else from the entry, and golden values from whatever key begins with its name.
"""

from fedwin.algorithms.adabest import adabest
from fedwin.algorithms.adaptive import fedadagrad, fedadam, fedyogi
from fedwin.algorithms.catalog import Catalog, Paper
from fedwin.algorithms.fedacg import fedacg
from fedwin.algorithms.fedadc import fedadc
from fedwin.algorithms.fedavg import fedavg
from fedwin.algorithms.fedcm import fedcm
from fedwin.algorithms.feddyn import feddyn
from fedwin.algorithms.fedfa import fedfa
from fedwin.algorithms.fedgma import fedgma
from fedwin.algorithms.fednova import fednova
from fedwin.algorithms.fedopt import fedavgm, fedopt
from fedwin.algorithms.fedprox import fedprox
from fedwin.algorithms.fedsam import fedasam, fedsam
from fedwin.algorithms.ghb import fedhbm, ghb, local_ghb
from fedwin.algorithms.mime import mime, mimelite
from fedwin.algorithms.scaffold import scaffold

ALGORITHMS = Catalog("algorithm")

_adaptive = Paper("Adaptive Federated Optimization", "https://arxiv.org/abs/2003.00295", "reddi2021adaptive")

ALGORITHMS.add(
    fedavg,
    Paper(
        "Communication-Efficient Learning of Deep Networks from Decentralized Data",
        "https://arxiv.org/abs/1602.05629",
        "mcmahan2017communication",
    ),
    reported="1x",
    instances=("fedavg", "fedavg:weighting=uniform,server_lr=0.5"),
)
ALGORITHMS.add(
    fedopt,
    _adaptive,
    reported="1x",
    server="1 + optimiser",
    instances=(
        "fedopt:optimizer=sgd",
        "fedopt:optimizer=momentum,nesterov=true",
        "fedopt:optimizer=adam,server_lr=0.1",
        "fedopt:optimizer=adam,server_lr=0.1,bias_correction=false",
        "fedopt:optimizer=yogi,server_lr=0.1",
        "fedopt:optimizer=adagrad,server_lr=0.1",
    ),
    degenerate={"optimizer": "sgd"},
)
ALGORITHMS.add(
    fedavgm,
    Paper(
        "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
        "https://arxiv.org/abs/1909.06335",
        "hsu2019measuring",
    ),
    reported="1x",
    server="2",
    instances=("fedavgm:beta=0.5",),
    degenerate={"beta": 0},
)
ALGORITHMS.add(fedadam, _adaptive, server="3", instances=("fedadam:server_lr=0.1",))
ALGORITHMS.add(fedyogi, _adaptive, server="3", instances=("fedyogi:server_lr=0.1",))
ALGORITHMS.add(fedadagrad, _adaptive, server="3")
ALGORITHMS.add(
    fedprox,
    Paper("Federated Optimization in Heterogeneous Networks", "https://arxiv.org/abs/1812.06127", "li2020federated"),
    reported="1x",
    instances=("fedprox:mu=0.5",),
    degenerate={"mu": 0},
)
ALGORITHMS.add(
    scaffold,
    Paper(
        "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
        "https://arxiv.org/abs/1910.06378",
        "karimireddy2020scaffold",
    ),
    down="2",
    up="2",
    reported="2x",
    server="2",
    client="1",
    instances=("scaffold", "scaffold:option=I,control_weighting=samples"),
)
ALGORITHMS.add(
    feddyn,
    Paper(
        "Federated Learning Based on Dynamic Regularization", "https://arxiv.org/abs/2111.04263", "acar2021federated"
    ),
    reported="1x",
    server="2",
    client="1",
    instances=("feddyn:alpha=0.1", "feddyn:alpha=0.1,eval_model=average,client_alpha=by_size"),
)
ALGORITHMS.add(
    adabest,
    Paper(
        "AdaBest: Minimizing Client Drift in Federated Learning via Adaptive Bias Estimation",
        "https://arxiv.org/abs/2204.13170",
        "varno2022adabest",
    ),
    reported="1x",
    server="2",
    client="1 + last round",
    instances=("adabest:mu=0.2", "adabest:eval_model=average"),
    degenerate={"mu": 0, "beta": 0},
)
ALGORITHMS.add(
    fedcm,
    Paper("FedCM: Federated Learning with Client-level Momentum", "https://arxiv.org/abs/2106.10874", "xu2021fedcm"),
    down="2",
    reported="1.5x",
    server="2",
    instances=("fedcm:alpha=0.4",),
    degenerate={"alpha": 1},
)
ALGORITHMS.add(
    fedadc,
    Paper(
        "FedADC: Accelerated Federated Learning with Drift Control",
        "https://arxiv.org/abs/2012.09102",
        "ozfatura2021fedadc",
    ),
    down="2",
    reported="1.5x",
    server="2",
    instances=("fedadc:beta_global=0.6", "fedadc:beta_global=0.6,beta_local=1.0"),
    degenerate={"beta_global": 0, "beta_local": 0},
)
ALGORITHMS.add(
    fedacg,
    Paper(
        "Communication-Efficient Federated Learning with Accelerated Client Gradient",
        "https://arxiv.org/abs/2201.03172",
        "kim2024communication",
    ),
    server="2",
    instances=("fedacg:lam=0.5",),
    degenerate={"lam": 0, "beta": 0},
)
_mime = Paper(
    "Mime: Mimicking Centralized Stochastic Algorithms in Federated Learning",
    "https://arxiv.org/abs/2008.03606",
    "karimireddy2021breaking",
)
ALGORITHMS.add(
    mime,
    _mime,
    down="2 (3 with momentum)",
    up="2",
    reported="2x (3x)",
    server="1 (2)",
    instances=("mime", "mime:beta=0.5,weighting=uniform"),
)
ALGORITHMS.add(
    mimelite,
    _mime,
    down="2",
    up="2",
    reported="2x",
    server="2",
    instances=("mimelite:beta=0.5",),
    degenerate={"beta": 0},
)
ALGORITHMS.add(
    fednova,
    Paper(
        "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
        "https://arxiv.org/abs/2007.07481",
        "wang2020tackling",
    ),
    up="1 + 1 number",
    instances=("fednova", "fednova:mu=0.5,tau_eff=steps"),
)
ALGORITHMS.add(
    fedgma,
    Paper(
        "Gradient Masked Averaging for Federated Learning", "https://arxiv.org/abs/2201.11986", "tenison2022gradient"
    ),
    server="1 + 2 sums",
    instances=("fedgma", "fedgma:threshold=0.8,mode=hard", "fedgma:mode=extra_step"),
    degenerate={"threshold": 0},
)
_sam = Paper(
    "Improving Generalization in Federated Learning by Seeking Flat Minima",
    "https://arxiv.org/abs/2203.11834",
    "caldarola2022improving",
)
ALGORITHMS.add(fedsam, _sam, degenerate={"rho": 0})
ALGORITHMS.add(fedasam, _sam, degenerate={"rho": 0})
ALGORITHMS.add(
    fedfa,
    Paper(
        "FedFA: Federated Learning with Feature Anchors to Align Features and Classifiers for Heterogeneous Data",
        "https://arxiv.org/abs/2211.09299",
        "zhou2023fedfa",
    ),
    down="1 + C d numbers",
    up="1 + C d numbers",
    server="1 + C d",
    instances=("fedfa", "fedfa:calibrate_from=0,divide=present"),
    degenerate={"lam": 0, "calibrate_lr": 0},
)
_ghb = Paper(
    "Communication-Efficient Heterogeneous Federated Learning with Generalized Heavy-Ball Momentum",
    "https://arxiv.org/abs/2311.18578",
    "zaccone2023communication",
)
ALGORITHMS.add(
    ghb,
    _ghb,
    down="2",
    reported="1.5x",
    server="1 + tau",
    instances=("ghb:tau=2,beta=0.5", "ghb:beta=0.5,nesterov=true"),
    degenerate={"beta": 0},
)
ALGORITHMS.add(
    local_ghb,
    _ghb,
    reported="1x",
    client="1",
    instances=("local_ghb:beta=0.5", "local_ghb:beta=0.5,first=random,scale=tau_i"),
    degenerate={"beta": 0},
)
ALGORITHMS.add(
    fedhbm,
    _ghb,
    reported="1x",
    client="1",
    instances=("fedhbm", "fedhbm:first=shared", "fedhbm:first=random,nesterov=true"),
    degenerate={"beta": 0},
)
