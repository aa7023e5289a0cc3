"""What Figures 6 and 7 of the IMA paper share: a parameter along the axis, FedAvg with and without IMA."""

from ..claims import Claim
from ..items import Entry
from ..trajectories import Fields
from .settings import BASE, CNN_DIRICHLET, averaging

# CIFAR-10 with Dirichlet shares and the CNN, as in Tables II and III.
SWEPT = Entry(
    "swept", paper=BASE.paper | CNN_DIRICHLET.paper, trend=(BASE.trend or Fields()) | (CNN_DIRICHLET.trend or Fields())
)
FEDAVG = Entry("fedavg", "FedAvg", Fields(algorithm="fedavg"))
WITH_AND_WITHOUT = (Entry("base", "without IMA"), averaging("ima", "with IMA"))
BETTER = Claim(
    "IMA is more accurate than the method without it, wherever the parameter is.",
    (("variant", "ima"),),
    (("variant", "base"),),
)
WHO = "Which methods the figure shows is not stated: FedAvg."
STANDIN = "Digits, a hidden layer of 64, 4 of 40 clients, 120 rounds"
